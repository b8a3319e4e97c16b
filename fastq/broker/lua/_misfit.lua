-- Takes a task out of its new place again, as its key has become one of another type: it alone fails, with outcome 0.
-- Any other error may not be the task's fault, as in a cluster it may be moving to another node: it is raised. Uses
-- task_prefix, outcomes, all.
local function misfit(fault, nth, id, state, remove, place, count)
  if not string.find(fault.err, "WRONGTYPE", 1, true) then redis.call("HSET", task_prefix .. id, "state", state) end
  if count then redis.call(remove, place, count, id) else redis.call(remove, place, id) end
  outcomes[nth], all = 0, false
end
