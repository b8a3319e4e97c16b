--[[ enqueue_limited: put tasks into pending as enqueue does, up to the queue's limit of pending tasks.
KEYS[1] pending        asynq:{q}:pending
KEYS[2] quota          asynq:{q}:quota
ARGV[1] task_prefix    asynq:{q}:t:
ARGV[2] pending_since  unix nanoseconds
ARGV[3] width          arguments a task: 2 (id, message) or 4 (id, message, lock key or "", lock seconds)
ARGV[4...] tasks       width values for each
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns list: the limit of pending tasks, 0 if there is none; pending tasks then, 0 without a limit; the reply of
  enqueue, with -3 for a task beyond the limit
asynq   none
]]
local pending, quota = KEYS[1], KEYS[2]
local task_prefix, pending_since, width = ARGV[1], ARGV[2], tonumber(ARGV[3])
local function put(ARGV)
-- include: put_pending
end

local most = tonumber(redis.call("HGET", quota, "pending") or "")
if not most then
  local outcomes = put(ARGV)
  if type(outcomes) == "table" and outcomes.err then return outcomes end
  return {0, 0, outcomes}
end
local there = redis.pcall("LLEN", pending) -- only a queue with a limit needs the right to LLEN
if type(there) == "table" then return there end

-- A task that is refused for another reason does not count against the limit. So tasks are put until the limit is
-- reached.
local given, outcomes, passed = {unpack(ARGV, 4)}, {}, 0
while passed < #given and there < most do
  local count = math.min(#given - passed, (most - there) * width)
  local some = put({task_prefix, pending_since, width, unpack(given, passed + 1, passed + count)})
  if type(some) == "table" and some.err then return some end
  for at = 1, count / width do
    local outcome = some == 1 and 1 or some[at]
    if outcome == 1 then there = there + 1 end
    outcomes[#outcomes + 1] = outcome
  end
  passed = passed + count
end
for at = passed + 1, #given, width do
  -- A task that exists may be ours, put by a request whose reply was lost.
  outcomes[#outcomes + 1] = redis.call("EXISTS", task_prefix .. given[at]) == 1 and 0 or -3
end
return {most, there, outcomes}
