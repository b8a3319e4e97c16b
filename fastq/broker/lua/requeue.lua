--[[ requeue: put tasks that were not run, or not to the end, back at the head of their queue.
KEYS[1] active           asynq:{q}:active
KEYS[2] lease            asynq:{q}:lease
KEYS[3] pending          asynq:{q}:pending
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] pending_since    unix nanoseconds
ARGV[3] owner            the caller's mark, a fraction in the scores of its leases, or ""
ARGV[4] expired_at       unix seconds: only tasks whose lease ended by then, or ""
ARGV[5...] ids           task ids, the one to be run first at the front
builds  task_prefix .. id, same hash tag
returns 1 when every task was given back, else a list: 1 given back | 0 not active | -1 not the caller's
asynq   requeueCmd (which does not set pending_since)
cost    2.9 us a task at 500 tasks a call, 3.2 at 100 (benchmarks/bench_scripts.py)
]]
local active, lease, pending = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, pending_since, owner, expired_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local outcomes, back, all = {}, {}, true
-- Raises if the key has a wrong type, before a task is taken off active and cannot be stored.
redis.call("LLEN", pending)

local named = {unpack(ARGV, 5)}
-- include: guard

-- From the last to the first, so that the first id is at the tail of pending, where the next dequeue takes it.
for nth = #named, 1, -1 do
  local id, outcome = named[nth], 1
  if not guarded(nth) then
    outcome = -1
  elseif redis.call("LREM", active, 1, id) == 0 then
    outcome = 0
  else
    back[#back + 1] = id
  end
  if outcome ~= 1 then all = false end
  outcomes[nth] = outcome
end
if #back == 0 then return outcomes end

-- include: misfit
-- include: forget

redis.call("ZREM", lease, unpack(back))
redis.call("RPUSH", pending, unpack(back))
for nth, id in ipairs(named) do
  if outcomes[nth] == 1 then
    local stored = redis.pcall("HSET", task_prefix .. id, "state", "pending", "pending_since", pending_since)
    if type(stored) == "table" then misfit(stored, nth, id, "pending", "LREM", pending, -1) end
    forget(task_prefix .. id)
  end
end
if all then return 1 end
return outcomes
