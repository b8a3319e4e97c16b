--[[ queue_stats: count a queue's tasks by state, atomically.
KEYS[1] pending           asynq:{q}:pending
KEYS[2] active            asynq:{q}:active
KEYS[3] scheduled         asynq:{q}:scheduled
KEYS[4] retry             asynq:{q}:retry
KEYS[5] archived          asynq:{q}:archived
KEYS[6] completed         asynq:{q}:completed
KEYS[7] groups            asynq:{q}:groups
KEYS[8] processed         asynq:{q}:processed:{day}
KEYS[9] failed            asynq:{q}:failed:{day}
KEYS[10] processed_total  asynq:{q}:processed
KEYS[11] failed_total     asynq:{q}:failed
KEYS[12] paused           asynq:{q}:paused
KEYS[13] archive_rule     asynq:{q}:archive_rule
KEYS[14] lost             asynq:{q}:lost:{day}
KEYS[15] lease            asynq:{q}:lease
KEYS[16] quota            asynq:{q}:quota
ARGV[1] task_prefix       asynq:{q}:t:
ARGV[2] now               Unix seconds
builds  task_prefix .. oldest id, same hash tag
returns list: the size of each of the first seven keys; the four counters as text; 1 if paused; unix nanoseconds since
  when the oldest pending task waits; the archive's rule: tasks at most, action when full, tasks dropped; the counter of
  lost tasks; leases that have not expired; the lowest score of scheduled and retry; the limit of pending tasks. A text
  that is missing is ""
asynq   currentStatsCmd (which counts the tasks of all groups, too)
]]
local pending, active, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, groups, processed, failed = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local processed_total, failed_total, paused, archive_rule, lost = KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local lease, quota = KEYS[15], KEYS[16]
local task_prefix, now = ARGV[1], ARGV[2]

local function first_score(set) return redis.call("ZRANGE", set, 0, 0, "WITHSCORES")[2] end

local due, due_again = first_score(scheduled), first_score(retry)
if not due or due_again and tonumber(due_again) < tonumber(due) then due = due_again end
local rule = redis.pcall("HMGET", archive_rule, "max", "full", "dropped")
local oldest = redis.call("LINDEX", pending, -1)
return {
  redis.call("LLEN", pending),
  redis.call("LLEN", active),
  redis.call("ZCARD", scheduled),
  redis.call("ZCARD", retry),
  redis.call("ZCARD", archived),
  redis.call("ZCARD", completed),
  redis.call("SCARD", groups),
  redis.call("GET", processed) or "",
  redis.call("GET", failed) or "",
  redis.call("GET", processed_total) or "",
  redis.call("GET", failed_total) or "",
  redis.call("EXISTS", paused),
  oldest and redis.call("HGET", task_prefix .. oldest, "pending_since") or "",
  rule[1] or "",
  rule[2] or "",
  rule[3] or "",
  redis.call("GET", lost) or "",
  redis.call("ZCOUNT", lease, "(" .. now, "+inf"),
  due or "",
  redis.call("HGET", quota, "pending") or "",
}
