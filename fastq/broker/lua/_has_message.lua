-- A key that is not a hash has no message. Any other error ends the script, since the task may not be the cause: in a
-- cluster, it may be moving to another node.
local function has_message(task)
  local has = redis.pcall("HEXISTS", task, "msg")
  if type(has) == "table" and not string.find(has.err, "WRONGTYPE", 1, true) then redis.call("HEXISTS", task, "msg") end
  return has == 1
end
