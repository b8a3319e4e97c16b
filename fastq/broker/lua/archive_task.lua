--[[ archive_task: move a task that is not active to archived, and keep archived within its bounds.
KEYS[1] pending           asynq:{q}:pending
KEYS[2] scheduled         asynq:{q}:scheduled
KEYS[3] retry             asynq:{q}:retry
KEYS[4] archived          asynq:{q}:archived
KEYS[5] completed         asynq:{q}:completed
KEYS[6] groups            asynq:{q}:groups
KEYS[7] aggregation_sets  asynq:{q}:aggregation_sets
KEYS[8] archive_rule      asynq:{q}:archive_rule
KEYS[9] paused            asynq:{q}:paused
ARGV[1] task_prefix       asynq:{q}:t:
ARGV[2] group_prefix      asynq:{q}:g:
ARGV[3] task_id           the task's
ARGV[4] seen_at           index in pending at which it was seen; "" if it was not looked for, "none" if not found
ARGV[5] expected          the state that it must be in; "" for any
ARGV[6] now               unix seconds
ARGV[7] expire_before     unix seconds; tasks archived until then are deleted
ARGV[8] max_size          tasks that the archive keeps at most
builds  task_prefix .. task_id, group_prefix .. group, queue_prefix .. "h:" .. group, and
  lock keys asynq:{q}:unique:..., same hash tag
returns 1 archived | 0 no such task | the reason why not: its state, aggregation (its set is being aggregated), far
  (too deep in pending to be found at once)
asynq   archiveTaskCmd (which trims the archive without the tasks' hashes)
]]
local pending, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local completed, groups, aggregation_sets = KEYS[5], KEYS[6], KEYS[7]
local archive_rule, paused = KEYS[8], KEYS[9]
local task_prefix, group_prefix, task_id, seen_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local expected, now, expire_before, max_size = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])

-- include: take_off

-- include: drop_place

-- include: field_at

-- include: unlock_early

local task = task_prefix .. task_id
local found = redis.pcall("HMGET", task, "state", "group", "msg", "unique_key")
local state, group, message, its_lock = found[1], found[2], found[3], found[4]
if not (state and message) then return 0 end
-- Raises if the key has a wrong type, before the task is taken off its list or set and cannot be stored.
redis.call("ZCARD", archived)
if expected ~= "" and state ~= expected then return state end
local reason = state == "archived" and state or reason_to_leave(state, group or "")
if reason then return reason end
redis.call("ZADD", archived, now, task_id)
redis.call("HSET", task, "state", "archived")
drop_place(group, task_id)
unlock_early(task, task_id, its_lock)

-- include: trim_archive
return 1
