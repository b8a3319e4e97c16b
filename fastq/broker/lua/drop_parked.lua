--[[ drop_parked: delete tasks that a move parked, with their locks, since the other queue knows nothing of that move.
KEYS[1] moving       asynq:{q}:moving
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] token        the move's
ARGV[3...] ids       task ids
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns number of tasks deleted
asynq   none
]]
local moving = KEYS[1]
local task_prefix, token = ARGV[1], ARGV[2]
redis.call("ZCARD", moving)
local count = 0
for at = 3, #ARGV do
  local id = ARGV[at]
  local task = task_prefix .. id
  local found = redis.pcall("HMGET", task, "state", "move_token", "unique_key")
  if found[1] == "moving" and found[2] == token then
    if found[3] and redis.pcall("GET", found[3]) == id then redis.call("DEL", found[3]) end
    redis.call("UNLINK", task)
    redis.call("ZREM", moving, id)
    count = count + 1
  end
end
return count
