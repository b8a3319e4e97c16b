-- Takes a task whose key is not a hash out of its new place again: only this task fails, with outcome 0. Any other
-- error is raised, since the task may not be the cause: in a cluster, it may be moving to another node. Uses
-- task_prefix, outcomes, all.
local function misfit(fault, nth, id, state, remove, place, count)
  if not string.find(fault.err, "WRONGTYPE", 1, true) then redis.call("HSET", task_prefix .. id, "state", state) end
  if count then redis.call(remove, place, count, id) else redis.call(remove, place, id) end
  outcomes[nth], all = 0, false
end
