--[[ retry: move failed tasks to retry, where they wait for their next attempt.
KEYS[1] active           asynq:{q}:active
KEYS[2] lease            asynq:{q}:lease
KEYS[3] retry            asynq:{q}:retry
KEYS[4] processed        asynq:{q}:processed:{day}
KEYS[5] processed_total  asynq:{q}:processed
KEYS[6] failed           asynq:{q}:failed:{day}
KEYS[7] failed_total     asynq:{q}:failed
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] stats_expire_at  unix seconds
ARGV[3] side             LREM's count: -1 looks from the oldest active task, 1 from the newest
ARGV[4] owner            the caller's mark, a fraction in the scores of its leases, or ""
ARGV[5] expired_at       unix seconds: only tasks whose lease ended by then, which are counted as lost; or ""
ARGV[6] due_channel      asynq:{q}:due, told the earliest time if it is before all in retry
ARGV[7...] tasks         five values each: id, message, unix s of the retry, 1 if a failure, attempt's record or ""
builds  task_prefix .. id, same hash tag
returns 1 when every task was moved, else a list: 1 moved | 0 not active | -1 not the caller's
asynq   retryCmd
cost    3.8 us a task at 500 tasks a call, 4.6 at 100 (benchmarks/bench_scripts.py)
]]
local active, lease, retry = KEYS[1], KEYS[2], KEYS[3]
local processed, processed_total, failed, failed_total = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local task_prefix, stats_expire_at, side = ARGV[1], ARGV[2], ARGV[3]
local owner, expired_at, due_channel = ARGV[4], ARGV[5], ARGV[6]
local failures = 0

-- include: due_times

-- include: attempts_of

-- Raises if the key has a wrong type, before a task is taken off active and cannot be stored.
local known, soonest = earliest(retry), math.huge

local named = {}
for at = 7, #ARGV, 5 do named[#named + 1] = ARGV[at] end
-- include: guard
local counters = {processed, processed_total, failed, failed_total}
-- include: counters

local first = named[1]
-- include: nearer_end

-- include: release
-- include: misfit
-- include: forget

local waiting = {}
for _, nth in ipairs(taken) do
  local at = 2 + 5 * nth
  local retry_at = ARGV[at + 2]
  waiting[#waiting + 1] = retry_at
  waiting[#waiting + 1] = ARGV[at]
  soonest = math.min(soonest, retry_at)
  if ARGV[at + 3] == "1" then failures = failures + 1 end
end
redis.call("ZADD", retry, unpack(waiting))
for _, nth in ipairs(taken) do
  local at = 2 + 5 * nth
  local task = task_prefix .. ARGV[at]
  local stored = redis.pcall("HSET", task, "msg", ARGV[at + 1], "state", "retry", attempts_of(task, ARGV[at + 4]))
  if type(stored) == "table" then misfit(stored, nth, ARGV[at], "retry", "ZREM", retry) end
  forget(task)
  -- Another client may have stored a text that is no number; the error must not stop the script half-way.
  if expired_at ~= "" then redis.pcall("HINCRBY", task, "lost", 1) end
end

if soonest < known then tell(soonest) end
if failures == 0 then
  if all then return 1 end
  return outcomes
end
local finished = failures
-- include: count_processed
-- include: count_failed
if all then return 1 end
return outcomes
