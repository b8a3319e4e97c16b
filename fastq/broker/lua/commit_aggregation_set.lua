--[[ commit_aggregation_set: enqueue the task made of a set, and mark the set as aggregated: both, or nothing.
KEYS[1] aggregation_set   asynq:{q}:g:{group}:{set}
KEYS[2] aggregation_sets  asynq:{q}:aggregation_sets
KEYS[3] pending           asynq:{q}:pending
KEYS[4] scheduled         asynq:{q}:scheduled
KEYS[5] groups            asynq:{q}:groups
KEYS[6] scheduled_groups  asynq:{q}:scheduled_groups
ARGV[1] task_prefix       asynq:{q}:t:
ARGV[2] group_prefix      asynq:{q}:g:
ARGV[3] expected          number of tasks that the set must have: with fewer, some were given back meanwhile
ARGV[4] state             of the new task: pending, scheduled or aggregating
ARGV[5] at                unix nanoseconds if pending, else the unix seconds that are its score
ARGV[6] id                the new task's
ARGV[7] message           the new task's
ARGV[8] lock              key of its unique lock or ""; a task of the set may hold that, and passes it on
ARGV[9] lock_ttl          seconds
ARGV[10] group_name       the new task's own group or ""
ARGV[11] due_channel      asynq:{q}:due, told the time of a scheduled task if it is before all in scheduled
builds  task_prefix .. id, group_prefix .. group_name, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 done | 2 was done before | 0 id exists | -1 lock held | -2 the set is gone or was given back
asynq   none (Enqueue, then deleteAggregationSetCmd: a server that dies between them has its tasks aggregated twice)
]]
local aggregation_set, aggregation_sets, pending = KEYS[1], KEYS[2], KEYS[3]
local scheduled, groups, scheduled_groups = KEYS[4], KEYS[5], KEYS[6]
local task_prefix, group_prefix, expected, state, at = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local id, message, lock, lock_ttl, group_name = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local due_channel = ARGV[11]

-- include: due_times

local deadline = redis.call("ZSCORE", aggregation_sets, aggregation_set)
if deadline == "inf" then return 2 end
if not deadline or redis.call("ZCARD", aggregation_set) ~= expected then return -2 end
local task = task_prefix .. id
if redis.call("EXISTS", task) == 1 then return 0 end
if lock ~= "" then
  local holder = redis.call("GET", lock)
  if holder and not redis.call("ZSCORE", aggregation_set, holder) then return -1 end
end

-- These raise if a key has a wrong type, before anything is written.
if group_name ~= "" then redis.call("SCARD", groups) end
if state == "pending" then
  redis.call("LLEN", pending)
elseif state == "scheduled" then
  redis.call("ZCARD", scheduled)
  redis.call("ZCARD", scheduled_groups)
else
  redis.call("ZCARD", group_prefix .. group_name)
end

redis.call("HSET", task, "msg", message, "state", state)
if lock ~= "" then
  redis.call("SET", lock, id, "EX", lock_ttl)
  redis.call("HSET", task, "unique_key", lock)
end
if group_name ~= "" then
  redis.call("HSET", task, "group", group_name)
  redis.call("SADD", groups, group_name)
  if state == "scheduled" then redis.call("ZADD", scheduled_groups, "GT", at, group_name) end
end
if state == "pending" then
  redis.call("HSET", task, "pending_since", at)
  redis.call("LPUSH", pending, id)
elseif state == "scheduled" then
  local known = earliest(scheduled)
  redis.call("ZADD", scheduled, at, id)
  if tonumber(at) < known then tell(at) end
else
  redis.call("ZADD", group_prefix .. group_name, at, id)
end
-- A deadline that never comes: no recoverer, not even Go's, returns the set. fastq's recoverers delete its tasks in
-- stretches.
redis.call("ZADD", aggregation_sets, "inf", aggregation_set)
return 1
