--[[ repair_lease: repair expired leases whose tasks are not in active: drop them, and give lost tasks back to pending.
KEYS[1] lease        asynq:{q}:lease
KEYS[2] active       asynq:{q}:active
KEYS[3] pending      asynq:{q}:pending
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] expired_at   unix seconds: only leases that ended by then
ARGV[3] now_ns       unix nanoseconds
ARGV[4...] ids       task ids
builds  task_prefix .. id, same hash tag
returns list: ids looked at, as many as 100000 elements of active allow but at least one; leases repaired
asynq   none (such leases stay forever)
]]
local lease, active, pending = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, expired_at, now_ns = ARGV[1], tonumber(ARGV[2]), ARGV[3]
-- Raises if the key has a wrong type, before a task could lose its lease and be stored nowhere.
redis.call("LLEN", pending)
-- A Redis that is out of memory refuses a write that may need memory only if it is the script's first, so a harmless
-- write comes first.
redis.call("ZREM", lease, "")
-- LPOS scans all of active for an id that is not in it, so few ids are looked at when active is long.
local most = math.max(1, math.floor(100000 / math.max(1, redis.call("LLEN", active))))
local last = math.min(#ARGV, 3 + most)
local repaired = 0
-- include: forget

for at = 4, last do
  local id = ARGV[at]
  local score = tonumber(redis.call("ZSCORE", lease, id) or nil)
  if score and score <= expired_at and not redis.call("LPOS", active, id) then
    -- A key that is not a hash is not a task. Any other error may not be the task's fault: in a cluster the task may be
    -- moving to another node.
    local found = redis.pcall("HMGET", task_prefix .. id, "state")
    if found.err and not string.find(found.err, "WRONGTYPE", 1, true) then return found end
    -- The lease is deleted last: if anything fails before that, the next round finds the task by its lease.
    if found[1] == "active" then
      redis.call("RPUSH", pending, id)
      redis.call("HSET", task_prefix .. id, "state", "pending", "pending_since", now_ns)
      forget(task_prefix .. id)
    end
    redis.call("ZREM", lease, id)
    repaired = repaired + 1
  end
end
return {last - 3, repaired}
