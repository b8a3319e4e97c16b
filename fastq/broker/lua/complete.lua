--[[ complete: move finished tasks to completed, where they are kept until their retention ends.
KEYS[1] active           asynq:{q}:active
KEYS[2] lease            asynq:{q}:lease
KEYS[3] completed        asynq:{q}:completed
KEYS[4] processed        asynq:{q}:processed:{day}
KEYS[5] processed_total  asynq:{q}:processed
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] stats_expire_at  unix seconds
ARGV[3] side             LREM's count: -1 looks from the oldest active task, 1 from the newest
ARGV[4] owner            the caller's mark, a fraction in the scores of its leases, or "" to take any
ARGV[5...] tasks         five values for each: id, message, unix seconds it is kept until, lock key or "", result
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 when every task was completed, else a list: 1 completed | 0 not active | -1 not the caller's
asynq   markAsCompleteCmd, markAsCompleteUniqueCmd; the first byte of result, 0 or 1, says whether there is one
cost    3.0 us a task at 500 tasks a call, 3.3 at 100 (benchmarks/bench_scripts.py)
]]
local active, lease, completed, processed, processed_total = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task_prefix, stats_expire_at, side, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- Raises if the key has a wrong type, before a task is taken off active and cannot be stored.
redis.call("ZCARD", completed)

local named = {}
for at = 5, #ARGV, 5 do named[#named + 1] = ARGV[at] end
local expired_at = ""
-- include: guard
local counters = {processed, processed_total}
-- include: counters

local first = named[1]
-- include: nearer_end

-- include: release
-- include: misfit

local finished, kept = #moved, {}
for _, nth in ipairs(taken) do
  local at = 5 * nth
  kept[#kept + 1] = ARGV[at + 2]
  kept[#kept + 1] = ARGV[at]
end
redis.call("ZADD", completed, unpack(kept))
for _, nth in ipairs(taken) do
  local at = 5 * nth
  local id, message, lock, result = ARGV[at], ARGV[at + 1], ARGV[at + 3], ARGV[at + 4]
  local task = task_prefix .. id
  local stored
  if string.byte(result) == 49 then -- "1"
    stored = redis.pcall("HSET", task, "msg", message, "state", "completed", "result", string.sub(result, 2))
  else
    stored = redis.pcall("HSET", task, "msg", message, "state", "completed")
    -- A Go server or asynqmon may have left a result of an earlier run or attempt.
    redis.pcall("HDEL", task, "result")
  end
  if type(stored) == "table" then misfit(stored, nth, id, "completed", "ZREM", completed) end
  -- A message may name any key as its lock; GET raises if the key is not a string.
  if lock ~= "" and redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
end

-- include: count_processed
if all then return 1 end
return outcomes
