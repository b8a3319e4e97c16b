--[[ run_tasks: move some of the tasks of a state to pending.
KEYS[1] source       asynq:{q}:scheduled or another list or set of ids
KEYS[2] lease        asynq:{q}:lease
KEYS[3] groups       asynq:{q}:groups
KEYS[4] pending      asynq:{q}:pending
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        the state of the tasks in the source
ARGV[3] group        the group's name if the source is a group, else ""
ARGV[4] count        ids to take at most
ARGV[5] last         the newest id of a list, or greatest score, to take; "" for no bound
ARGV[6] now_ns       unix nanoseconds
builds  task_prefix .. id, same hash tag
returns list: ids taken, tasks moved
asynq   runAllCmd, runAllAggregatingCmd (all tasks in one call, and pending_since is not set)
]]
local source, lease, groups, pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local task_prefix, state, group, count, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local now_ns = ARGV[6]

-- include: take_some
-- include: forget

redis.call("LLEN", pending)
local taken, moved = ids_to_take(), {}
-- The writes that free memory come first: a Redis that is out of memory then lets the later writes pass.
take_off(#taken)
for _, id in ipairs(taken) do
  local task = task_prefix .. id
  if is_here(id, redis.pcall("HMGET", task, "state")[1]) then
    redis.call("HSET", task, "state", "pending", "pending_since", now_ns)
    forget(task)
    moved[#moved + 1] = id
  end
end
if #moved > 0 then redis.call("LPUSH", pending, unpack(moved)) end
return {#taken, #moved}
