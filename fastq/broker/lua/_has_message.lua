-- A key that is no hash is as good as none. Any other error says nothing of the task: in a cluster it may be on its way
-- to another node; then the script ends with it.
local function has_message(task)
  local has = redis.pcall("HEXISTS", task, "msg")
  if type(has) == "table" and not string.find(has.err, "WRONGTYPE", 1, true) then redis.call("HEXISTS", task, "msg") end
  return has == 1
end
