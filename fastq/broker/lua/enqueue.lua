--[[ enqueue: put tasks into pending, each unless its id exists or its unique lock is held.
KEYS[1] pending        asynq:{q}:pending
ARGV[1] task_prefix    asynq:{q}:t:
ARGV[2] pending_since  unix nanoseconds
ARGV[3] width          arguments a task: 2 (id, message) or 4 (id, message, lock key or "", lock seconds)
ARGV[4...] tasks       width values for each
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 when every task was put, else a list: 1 put | 0 id exists | -1 lock held
asynq   enqueueCmd, enqueueUniqueCmd (which take the lock before they look at the id, and leak it)
cost    1.5 us a task at 500 tasks a call; 3.0 with unique locks (benchmarks/bench_scripts.py)
]]
local pending = KEYS[1]
local task_prefix, pending_since, width = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ids, outcomes, refused = {}, {}, false

for at = 4, #ARGV, width do
  local id, message, lock = ARGV[at], ARGV[at + 1], ""
  local task = task_prefix .. id
  if width == 4 then lock = ARGV[at + 2] end
  local outcome = 1
  if redis.call("EXISTS", task) == 1 then
    outcome = 0
  elseif lock == "" then
    redis.call("HSET", task, "msg", message, "state", "pending", "pending_since", pending_since)
  elseif redis.call("SET", lock, id, "NX", "EX", ARGV[at + 3]) then
    redis.call("HSET", task, "msg", message, "state", "pending", "pending_since", pending_since, "unique_key", lock)
  else
    outcome = -1
  end
  if outcome == 1 then ids[#ids + 1] = id else refused = true end
  outcomes[#outcomes + 1] = outcome
end

local pushed = #ids == 0 or redis.pcall("LPUSH", pending, unpack(ids))
if type(pushed) == "table" then
  -- Refused, for example because pending is not a list: undo all writes. A check before would slow down every call.
  for at = 4, #ARGV, width do
    if outcomes[(at - 4) / width + 1] == 1 then
      redis.call("DEL", task_prefix .. ARGV[at])
      if width == 4 and ARGV[at + 2] ~= "" then redis.call("DEL", ARGV[at + 2]) end
    end
  end
  return pushed
end
if refused then return outcomes end
return 1
