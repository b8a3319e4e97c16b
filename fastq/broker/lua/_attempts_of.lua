-- Returns the field and the value that HSET needs to add a record to a task's failed attempts; the last five are kept.
-- Returns nothing if there is no record.
local function attempts_of(task, record)
  if record == "" then return end
  local kept = redis.pcall("HGET", task, "attempts")
  if type(kept) ~= "string" or #kept % #record ~= 0 then kept = "" end
  return "attempts", string.sub(kept .. record, -5 * #record)
end
