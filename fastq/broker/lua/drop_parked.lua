--[[ drop_parked: delete tasks that a move has parked, and their locks, because the other queue does not know the move.
KEYS[1] moving       asynq:{q}:moving
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] token        the move's
ARGV[3...] tasks     three values each: id, lock key or "", the move that parked it here
builds  task_prefix .. id, lock keys asynq:{q}:unique:..., same hash tag
returns number of tasks deleted
asynq   none
]]
local moving = KEYS[1]
local task_prefix, token = ARGV[1], ARGV[2]
redis.call("ZCARD", moving)
local count = 0
for at = 3, #ARGV, 3 do
  local id, lock, copy = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local task = task_prefix .. id
  local found = redis.pcall("HMGET", task, "state", "move_token", "move_copy")
  if found.err and not string.find(found.err, "WRONGTYPE", 1, true) then return found end -- another error
  if found[1] == "moving" and found[2] == token and (found[3] or "") == copy then
    -- A message may name any key as its lock; GET raises if the key is not a string.
    if lock ~= "" and redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
    redis.call("UNLINK", task)
    redis.call("ZREM", moving, id)
    count = count + 1
  end
end
return count
