--[[ done: take finished tasks off the active list, delete them, release their locks, count them.
KEYS[1] active           asynq:{q}:active
KEYS[2] lease            asynq:{q}:lease
KEYS[3] processed        asynq:{q}:processed:{day}
KEYS[4] processed_total  asynq:{q}:processed
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] stats_expire_at  unix seconds
ARGV[3] side             LREM's count: -1 looks from the oldest active task, 1 from the newest
ARGV[4] owner            the caller's mark, a fraction in the scores of its leases, or "" to take any
ARGV[5] count            number of ids
ARGV[6...] tasks         count ids, then id, lock key for each that has one
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 when every task was done, else a list: 1 done | 0 not active | -1 not the caller's
asynq   doneCmd, doneUniqueCmd
cost    1.2 us a task at 100 and at 500 tasks a call; 1.9 when the owner is asked (benchmarks/bench_scripts.py)
        behind 1000 or 10000 other tasks 1-2 us more at 400 tasks a call; an LREM for each took 20 and 200 us more
]]
local active, lease, processed, processed_total = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local task_prefix, stats_expire_at, side, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count = tonumber(ARGV[5])
local outcomes, ids, tasks, all = {}, {}, {}, true

-- These raise if a key has a wrong type, before a task is taken off active.
local counters = {processed, processed_total}
-- include: counters
local scores
if owner ~= "" then
  scores = redis.call("ZMSCORE", lease, unpack(ARGV, 6, 5 + count))
else
  redis.call("ZCARD", lease)
end
local function is_ours(at) return not scores or (scores[at] and tonumber(scores[at]) % 1 == tonumber(owner)) end

-- Other servers' long tasks, and ours, may be among and before the finished ones: LREM would pass them all for each
-- task, at 17 ns each. If the tasks are not near the end, a larger call marks them in one walk, at 0.25 us per element,
-- and removes the marks by one LREM. For few tasks, LREM just searches from the nearer end.
local first, last = ARGV[6], ARGV[5 + count]
local mark = "\255 is taken off active by this call \255" -- as long as a UUID, so that no element is moved
local wanted, left, walked, marked, marks, all_seen = {}, 0, 0, {}, 0, false
local function find(id, from, most) return redis.call("LPOS", active, id, "RANK", from, "MAXLEN", most) end

-- Marks the wanted ids in a part of active, and returns whether it has seen the whole part. All walks together visit at
-- most 20000 elements.
local function walk(low, high)
  while left > 0 and low <= high and walked < 20000 do
    local from = side == "1" and low or math.max(low, high - 499)
    local passed = redis.call("LRANGE", active, from, math.min(high, from + 499))
    for at = 1, #passed do
      local id = passed[at]
      if wanted[id] then
        -- If LSET is refused, by ACL rules or for lack of memory, LREM takes the tasks off.
        if redis.pcall("LSET", active, from + at - 1, mark).err then return false end
        wanted[id], marked[id], left, marks = nil, true, left - 1, marks + 1
      end
    end
    walked = walked + #passed
    if side == "1" then low = from + 500 else high = from - 1 end
  end
  return low > high
end

if count >= 16 and not find(last, side, count + 64) then
  -- The removal of the marks must not be refused. Redis 6.2 cannot tell whether it would be, so an LREM that removes
  -- nothing tries it.
  if not redis.acl_check_cmd then redis.call("LREM", active, side, mark) end
  for at = 1, count do
    local id = ARGV[5 + at]
    if is_ours(at) and not wanted[id] then wanted[id], left = true, left + 1 end
  end
  local length = redis.call("LLEN", active)
  local begin = find(first, -side, count + 64) or find(first, side, 200000) or (side == "1" and 0 or length - 1)
  if side == "1" then
    all_seen = walk(begin, length - 1) and walk(0, begin - 1)
  else
    all_seen = walk(0, begin) and walk(begin + 1, length - 1)
  end
  if marks > 0 then redis.call("LREM", active, begin < length / 2 and marks or -marks, mark) end
elseif count > 0 and not find(first, side, 1000) and find(first, -side, 1000) then
  side = -side
end

for at = 1, count do
  local id = ARGV[5 + at]
  local outcome = 1
  if not is_ours(at) then
    outcome = -1
  elseif marked[id] then
    marked[id] = false -- once: an id that is named twice must be in active twice
  elseif all_seen and marked[id] == nil or redis.call("LREM", active, side, id) == 0 then
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
  -- A task that was not ours to finish still has its hash, and keeps its lock. A message may name any key as its lock;
  -- GET raises if the key is not a string, which must not end a half-done batch.
  if redis.call("EXISTS", task_prefix .. id) == 0 and redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
end
local finished = #ids
-- include: count_processed
if all then return 1 end
return outcomes
