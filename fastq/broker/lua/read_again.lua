--[[ read_again: read when a task that was enqueued by key during its run is to run again, and its new payload's size.
KEYS[1] again    asynq:{q}:again
ARGV[1] task_id  the task's
builds  none
returns list: unix seconds to run at or "", latest unix seconds to run at or "", bytes of the payload; nil for no run
asynq   none
]]
local again = KEYS[1]
local task_id = ARGV[1]

-- include: field_at

local kept = redis.call("HGET", again, task_id)
local _, at, run_at, latest = string.find(kept or "", "^(%d*):(%d*):")
if not at then return end
at = at + 1
while at do
  local tag, first, stop = field_at(kept, at)
  if tag == 18 then return {run_at, latest, stop - first} end
  at = stop
end
return {run_at, latest, 0}
