--[[ archive: move tasks that failed for good to archived, and keep that set within its bounds.
KEYS[1] active           asynq:{q}:active
KEYS[2] lease            asynq:{q}:lease
KEYS[3] archived         asynq:{q}:archived
KEYS[4] processed        asynq:{q}:processed:{day}
KEYS[5] processed_total  asynq:{q}:processed
KEYS[6] failed           asynq:{q}:failed:{day}
KEYS[7] failed_total     asynq:{q}:failed
KEYS[8] archive_rule     asynq:{q}:archive_rule
KEYS[9] paused           asynq:{q}:paused
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] stats_expire_at  unix seconds
ARGV[3] side             LREM's count: -1 looks from the oldest active task, 1 from the newest
ARGV[4] owner            fraction of the lease scores that are the caller's, or ""
ARGV[5] expired_at       unix seconds: only tasks whose lease ended by then, which are counted as lost; or ""
ARGV[6] now              unix seconds
ARGV[7] expire_before    unix seconds; what was archived until then is deleted
ARGV[8] max_size         tasks that the archive holds at most
ARGV[9...] tasks         two values for each: id, message
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 when every task was moved, else a list: 1 moved | 0 not active | -1 not the caller's
asynq   archiveCmd (which breaks with many expired tasks, after it has taken the task off active)
cost    2.8 us a task at 500 tasks a call, 3.4 at 100 (benchmarks/bench_scripts.py)
]]
local active, lease, archived = KEYS[1], KEYS[2], KEYS[3]
local processed, processed_total, failed, failed_total = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local archive_rule, paused = KEYS[8], KEYS[9]
local task_prefix, stats_expire_at, side, owner, expired_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now, expire_before, max_size = ARGV[6], ARGV[7], tonumber(ARGV[8])
local outcomes, failures, all = {}, 0, true
-- Raises for a key of another type, before a task is taken off active for which there is then no place.
redis.call("ZCARD", archived)

-- begin: guard
local function guarded(id)
  if owner == "" and expired_at == "" then return true end
  local score = tonumber(redis.call("ZSCORE", lease, id) or nil)
  if not score then return false end
  if owner ~= "" then return score % 1 == tonumber(owner) end
  return score <= tonumber(expired_at)
end
-- end: guard

local first = ARGV[9]
-- begin: nearer end
-- Before ours may lie long tasks of other servers, of which the caller knows nothing: LREM would pass all of them for
-- each task. A look for the first of ours tells, and costs no more than 1000 elements do.
local function is_near(from) return redis.call("LPOS", active, first, "RANK", from, "MAXLEN", 1000) end
if first and not is_near(side) and is_near(-side) then side = -side end
-- end: nearer end

for at = 9, #ARGV, 2 do
  local id, message = ARGV[at], ARGV[at + 1]
  local outcome = 1
  if not guarded(id) then
    outcome = -1
  elseif redis.call("LREM", active, side, id) == 0 then
    outcome = 0
  else
    redis.call("ZREM", lease, id)
    redis.call("ZADD", archived, now, id)
    redis.call("HSET", task_prefix .. id, "msg", message, "state", "archived")
    -- What others may have put there is no number: that is no reason to stop half-way.
    if expired_at ~= "" then redis.pcall("HINCRBY", task_prefix .. id, "lost", 1) end
    failures = failures + 1
  end
  if outcome ~= 1 then all = false end
  outcomes[#outcomes + 1] = outcome
end
if failures == 0 then return outcomes end

-- begin: trim archive
-- 750 a call at most: what others overfilled by far still gets smaller, since a call adds no more than 500.
local function drop(ids)
  if #ids == 0 then return end
  local doomed = {}
  for _, id in ipairs(ids) do
    local hash = task_prefix .. id
    local lock = redis.pcall("HMGET", hash, "unique_key")[1]
    if lock and redis.pcall("GET", lock) == id then doomed[#doomed + 1] = lock end
    doomed[#doomed + 1] = hash
  end
  redis.call("ZREM", archived, unpack(ids))
  redis.call("DEL", unpack(doomed))
end
-- What a server has set for this queue comes before the caller's bounds, which are asynq's.
local rule = redis.pcall("HMGET", archive_rule, "max", "ttl", "full")
local most, full = tonumber(rule[1] or nil) or max_size, rule[3]
if tonumber(rule[2] or nil) then expire_before = now - rule[2] end
if full ~= "spill" then -- a server's janitor writes the oldest to a file, and deletes them then
  local doomed = redis.call("ZRANGE", archived, "-inf", expire_before, "BYSCORE", "LIMIT", 0, 500)
  drop(doomed)
  local dropped, excess = #doomed, redis.call("ZCARD", archived) - most
  if full == "pause" then
    if excess >= 0 and redis.call("EXISTS", paused) == 0 then redis.call("SET", paused, now) end
  elseif excess > 0 then
    doomed = redis.call("ZRANGE", archived, 0, math.min(excess, 750 - dropped) - 1)
    drop(doomed)
    dropped = dropped + #doomed
  end
  if dropped > 0 then redis.pcall("HINCRBY", archive_rule, "dropped", dropped) end
end
-- end: trim archive
local finished = failures
-- begin: count processed
if redis.call("INCRBY", processed, finished) == finished then redis.call("EXPIREAT", processed, stats_expire_at) end
local wraps = tonumber(redis.call("GET", processed_total) or 0) + finished >= 9223372036854775807
if wraps then
  redis.call("SET", processed_total, finished)
else
  redis.call("INCRBY", processed_total, finished)
end
-- end: count processed
-- begin: count failed
if redis.call("INCRBY", failed, failures) == failures then redis.call("EXPIREAT", failed, stats_expire_at) end
-- The two totals begin anew together: there are never more failures than tasks.
if wraps or tonumber(redis.call("GET", failed_total) or 0) + failures >= 9223372036854775807 then
  redis.call("SET", failed_total, failures)
else
  redis.call("INCRBY", failed_total, failures)
end
-- end: count failed
if all then return 1 end
return outcomes
