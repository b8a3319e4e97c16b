--[[ examine_again: examine a stretch of the tasks enqueued by key during a run for those whose run is over.
KEYS[1] again        asynq:{q}:again
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] cursor       HSCAN's: 0 at first, then the one returned, until that is 0
ARGV[3] count        ids to look at, about
builds  task_prefix .. id, same hash tag
returns list: cursor, ids looked at, then id, what it is: over (put_again puts it), or wrong (its task is no hash)
asynq   none
]]
local again = KEYS[1]
local task_prefix, cursor, count = ARGV[1], ARGV[2], ARGV[3]
local stays = {active = true, aggregating = true, moving = true}
local found = redis.call("HSCAN", again, cursor, "COUNT", count)
local reply = {found[1], #found[2] / 2}
for at = 1, #found[2], 2 do
  local id = found[2][at]
  local task = task_prefix .. id
  local state = redis.pcall("HGET", task, "state")
  local is_wrong = type(state) == "table"
  -- Any other error ends the script: in a cluster, the task may be moving to another node.
  if is_wrong and not string.find(state.err, "WRONGTYPE", 1, true) then redis.call("HGET", task, "state") end
  if not stays[state] then
    reply[#reply + 1] = id
    reply[#reply + 1] = is_wrong and "wrong" or "over"
  end
end
return reply
