--[[ archive: move tasks that failed for good to archived, and keep archived within its bounds.
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
ARGV[4] owner            the caller's mark, a fraction in the scores of its leases, or ""
ARGV[5] expired_at       unix seconds: only tasks whose lease ended by then, which are counted as lost; or ""
ARGV[6] now              unix seconds
ARGV[7] expire_before    unix seconds; tasks archived until then are deleted
ARGV[8] max_size         tasks that the archive keeps at most
ARGV[9...] tasks         three values each: id, message, attempt's record or ""
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
-- Raises if the key has a wrong type, before a task is taken off active and cannot be stored.
redis.call("ZCARD", archived)

-- include: attempts_of

local named = {}
for at = 9, #ARGV, 3 do named[#named + 1] = ARGV[at] end
-- include: guard
local counters = {processed, processed_total, failed, failed_total}
-- include: counters

local first = named[1]
-- include: nearer_end

-- include: release
-- include: misfit

local failures, entries = #moved, {}
for _, id in ipairs(moved) do
  entries[#entries + 1] = now
  entries[#entries + 1] = id
end
redis.call("ZADD", archived, unpack(entries))
for _, nth in ipairs(taken) do
  local at = 6 + 3 * nth
  local task = task_prefix .. ARGV[at]
  local stored = redis.pcall("HSET", task, "msg", ARGV[at + 1], "state", "archived", attempts_of(task, ARGV[at + 2]))
  if type(stored) == "table" then misfit(stored, nth, ARGV[at], "archived", "ZREM", archived) end
  -- Another client may have stored a text that is no number; the error must not stop the script half-way.
  if expired_at ~= "" then redis.pcall("HINCRBY", task, "lost", 1) end
end

-- include: trim_archive
local finished = failures
-- include: count_processed
-- include: count_failed
if all then return 1 end
return outcomes
