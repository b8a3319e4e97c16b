--[[ put_back: put tasks that were lost with their server back at the head of their queue, with no attempt charged.
KEYS[1] active           asynq:{q}:active
KEYS[2] lease            asynq:{q}:lease
KEYS[3] pending          asynq:{q}:pending
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] pending_since    unix nanoseconds
ARGV[3] side             LREM's count: -1 looks from the oldest active task, 1 from the newest
ARGV[4] owner            the lost server's mark, a fraction in the scores of its leases, or ""
ARGV[5] expired_at       unix seconds: only tasks whose lease ends by then
ARGV[6...] tasks         three values each: id, message, attempt's record or ""; the one to be run first at the front
builds  task_prefix .. id, same hash tag
returns 1 when every task was put back, else a list: 1 put back | 0 not active | -1 another server's by now
asynq   none (its recoverer retries lost tasks, and charges an attempt)
]]
local active, lease, pending = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, pending_since, side, owner, expired_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- Raises if the key has a wrong type, before a task is taken off active and cannot be stored.
redis.call("LLEN", pending)

-- include: attempts_of

local named = {}
for at = 6, #ARGV, 3 do named[#named + 1] = ARGV[at] end
-- include: guard

local first = named[1]
-- include: nearer_end

-- include: release
-- include: misfit
-- include: forget

-- This puts the first id at the tail of pending, where the next dequeue takes it.
local back = {}
for nth = #moved, 1, -1 do back[#back + 1] = moved[nth] end
redis.call("RPUSH", pending, unpack(back))
for _, nth in ipairs(taken) do
  local at = 3 + 3 * nth
  local task = task_prefix .. ARGV[at]
  local stored = redis.pcall(
    "HSET", task, "msg", ARGV[at + 1], "state", "pending", "pending_since", pending_since,
    attempts_of(task, ARGV[at + 2])
  )
  if type(stored) == "table" then misfit(stored, nth, ARGV[at], "pending", "LREM", pending, -1) end
  forget(task)
  -- Another client may have stored a text that is no number; the error must not stop the script half-way.
  redis.pcall("HINCRBY", task, "lost", 1)
end

if all then return 1 end
return outcomes
