--[[ run_task: move a waiting, archived or completed task to pending.
KEYS[1] pending           asynq:{q}:pending
KEYS[2] scheduled         asynq:{q}:scheduled
KEYS[3] retry             asynq:{q}:retry
KEYS[4] archived          asynq:{q}:archived
KEYS[5] completed         asynq:{q}:completed
KEYS[6] groups            asynq:{q}:groups
KEYS[7] aggregation_sets  asynq:{q}:aggregation_sets
ARGV[1] task_prefix       asynq:{q}:t:
ARGV[2] group_prefix      asynq:{q}:g:
ARGV[3] task_id           the task's
ARGV[4] seen_at           index in pending at which it was seen; "" if it was not looked for, "none" if not found
ARGV[5] expected          the state that it must be in; "" for any
ARGV[6] now_ns            unix nanoseconds
builds  task_prefix .. task_id, group_prefix .. group, same hash tag
returns 1 moved | 0 no such task | the reason why not: its state, or aggregation (its set is being aggregated)
asynq   runTaskCmd (which does not set pending_since)
]]
local pending, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local completed, groups, aggregation_sets = KEYS[5], KEYS[6], KEYS[7]
local task_prefix, group_prefix, task_id, seen_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local expected, now_ns = ARGV[5], ARGV[6]

-- include: take_off
-- include: forget

local task = task_prefix .. task_id
local found = redis.pcall("HMGET", task, "state", "group", "msg")
local state, group, message = found[1], found[2], found[3]
if not (state and message) then return 0 end
-- Raises if the key has a wrong type, before the task is taken off its list or set and cannot be stored.
redis.call("LLEN", pending)
if expected ~= "" and state ~= expected then return state end
local reason = state == "pending" and state or reason_to_leave(state, group or "")
if reason then return reason end
redis.call("HSET", task, "state", "pending", "pending_since", now_ns)
forget(task)
redis.call("LPUSH", pending, task_id)
return 1
