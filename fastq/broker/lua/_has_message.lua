-- A key that is not a hash counts as none. Any other error may not be the task's fault: in a cluster it may be moving
-- to another node; then the script ends with it.
local function has_message(task)
  local has = redis.pcall("HEXISTS", task, "msg")
  if type(has) == "table" and not string.find(has.err, "WRONGTYPE", 1, true) then redis.call("HEXISTS", task, "msg") end
  return has == 1
end
