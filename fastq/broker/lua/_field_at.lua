-- Returns the value of the varint at a position, and the position behind it; nothing if there is none.
local function varint(text, at)
  local value, scale = 0, 1
  for place = at, at + 9 do
    local byte = string.byte(text, place)
    if not byte then return end
    value, scale = value + byte % 128 * scale, scale * 128
    if byte < 128 then return value, place + 1 end
  end
end

-- Returns the tag of the field at a position, and the positions of the field's value and of its end; nothing if the
-- message is broken there.
local function field_at(message, at)
  local tag, first = varint(message, at)
  if not tag then return end
  local kind, behind = tag % 8
  if kind == 0 then
    local _
    _, behind = varint(message, first)
  elseif kind == 1 then
    behind = first + 8
  elseif kind == 5 then
    behind = first + 4
  elseif kind == 2 then
    local size
    size, first = varint(message, first)
    behind = size and first + size
  end
  if behind and behind <= #message + 1 then return tag, first, behind end
end
