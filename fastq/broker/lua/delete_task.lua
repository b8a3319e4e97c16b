--[[ delete_task: delete a task that is not active, with its unique lock.
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
ARGV[6] mark              text that its message must contain, else the task is of another submit; "" for any
builds  task_prefix .. task_id, group_prefix .. group, queue_prefix .. "h:" .. group, and
  lock keys asynq:{q}:unique:..., same hash tag
returns 1 deleted | 0 no such task | the reason why not: its state, aggregation (its set is being aggregated), far
  (too deep in pending to be found at once) | list: deleted; its message, which may name a lock that its hash does not
asynq   deleteTaskCmd
]]
local pending, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local completed, groups, aggregation_sets = KEYS[5], KEYS[6], KEYS[7]
local task_prefix, group_prefix, task_id, seen_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local expected, mark = ARGV[5], ARGV[6]

-- include: take_off

-- include: drop_place

local task = task_prefix .. task_id
local found = redis.pcall("HMGET", task, "state", "unique_key", "group", "msg")
local state, lock, group, message = found[1], found[2], found[3], found[4]
if found.err or redis.call("EXISTS", task) == 0 then return 0 end
if expected ~= "" and state ~= expected then return state or 0 end
if mark ~= "" and not string.find(message or "", mark, 1, true) then return 0 end
-- A hash without a state was left by a write to a deleted task.
local reason = state and reason_to_leave(state, group or "")
if reason then return reason end
redis.call("UNLINK", task)
drop_place(group, task_id)
if lock and redis.pcall("GET", lock) == task_id then redis.call("DEL", lock) end
if group and message and not lock then return {message} end
return 1
