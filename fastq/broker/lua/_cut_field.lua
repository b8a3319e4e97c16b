local function varint_of(value)
  local bytes = ""
  while value >= 128 do
    bytes, value = bytes .. string.char(value % 128 + 128), math.floor(value / 128)
  end
  return bytes .. string.char(value)
end

-- Returns a field with its value cut to the first `limit` bytes; the value must be longer, and its tag must have one
-- byte. Text is cut between two characters.
local function cut_field(message, at, start, limit, is_text)
  local after = start + limit
  while is_text and after > start and math.floor(string.byte(message, after) / 64) == 2 do after = after - 1 end
  return string.sub(message, at, at) .. varint_of(after - start) .. string.sub(message, start, after - 1)
end
