-- Returns field and value for HSET to add a record to the failed attempts of a task, of which it keeps the last five;
-- nothing for no record.
local function attempts_of(task, record)
  if record == "" then return end
  local kept = redis.pcall("HGET", task, "attempts")
  if type(kept) ~= "string" or #kept % #record ~= 0 then kept = "" end
  return "attempts", string.sub(kept .. record, -5 * #record)
end
