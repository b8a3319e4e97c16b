--[[ done: take finished tasks off the active list, delete them, release their locks, count them.
KEYS[1] active           asynq:{q}:active
KEYS[2] lease            asynq:{q}:lease
KEYS[3] processed        asynq:{q}:processed:{day}
KEYS[4] processed_total  asynq:{q}:processed
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] stats_expire_at  unix seconds
ARGV[3] side             LREM's count: -1 looks from the oldest active task, 1 from the newest
ARGV[4] owner            fraction of the lease scores that are the caller's, or "" to take any
ARGV[5] count            number of ids
ARGV[6...] tasks         count ids, then id, lock key for each that has one
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 when every task was done, else a list: 1 done | 0 not active | -1 not the caller's
asynq   doneCmd, doneUniqueCmd
cost    1.2 us a task at 500 tasks a call; 1.9 when the owner is asked (benchmarks/bench_scripts.py)
]]
local active, lease, processed, processed_total = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local task_prefix, stats_expire_at, side, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count = tonumber(ARGV[5])
local outcomes, ids, tasks, all = {}, {}, {}, true

local first = ARGV[6]
-- begin: nearer end
-- Before ours may lie long tasks of other servers, of which the caller knows nothing: LREM would pass all of them for
-- each task. A look for the first of ours tells, and costs no more than 1000 elements do.
local function is_near(from) return redis.call("LPOS", active, first, "RANK", from, "MAXLEN", 1000) end
if first and not is_near(side) and is_near(-side) then side = -side end
-- end: nearer end

local scores = owner ~= "" and redis.call("ZMSCORE", lease, unpack(ARGV, 6, 5 + count))
for at = 1, count do
  local id = ARGV[5 + at]
  local outcome = 1
  if scores and not (scores[at] and tonumber(scores[at]) % 1 == tonumber(owner)) then
    outcome = -1
  elseif redis.call("LREM", active, side, id) == 0 then
    outcome = 0
  end
  if outcome == 1 then
    ids[#ids + 1] = id
    tasks[#tasks + 1] = task_prefix .. id
  else
    all = false
  end
  outcomes[at] = outcome
end
if #ids == 0 then return outcomes end

redis.call("ZREM", lease, unpack(ids))
redis.call("DEL", unpack(tasks))
for at = 6 + count, #ARGV, 2 do
  local id, lock = ARGV[at], ARGV[at + 1]
  -- A task that was not ours to finish still has its hash, and keeps its lock. What a message calls a lock may be any
  -- key: one that is no string is an error to GET, and must not end a batch that is half done.
  if redis.call("EXISTS", task_prefix .. id) == 0 and redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
end
local finished = #ids
-- begin: count processed
if redis.call("INCRBY", processed, finished) == finished then redis.call("EXPIREAT", processed, stats_expire_at) end
local wraps = tonumber(redis.call("GET", processed_total) or 0) + finished >= 9223372036854775807
if wraps then
  redis.call("SET", processed_total, finished)
else
  redis.call("INCRBY", processed_total, finished)
end
-- end: count processed
if all then return 1 end
return outcomes
