--[[ commit_move: delete tasks that are parked in the other queue, and note that they belong there now.
KEYS[1] moving       asynq:{q}:moving
KEYS[2] moved        asynq:{q}:moved
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] token        the move's
ARGV[3...] tasks     three values each: id, lock key or "", the move that parked it in the other queue
builds  task_prefix .. id, queue_prefix .. "h:" .. its group, and lock keys asynq:{q}:unique:..., same hash tag
returns list: 1 deleted for that copy, now or before | 0 the copy is late, or belongs to another move
asynq   none
]]
local moving, moved = KEYS[1], KEYS[2]
local task_prefix, token = ARGV[1], ARGV[2]

-- include: drop_place

redis.call("HLEN", moved)
redis.call("ZCARD", moving)
local outcomes = {}
for at = 3, #ARGV, 3 do
  local id, lock, copy = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local task, note = task_prefix .. id, token .. ":" .. id
  local found = redis.pcall("HMGET", task, "state", "move_token", "move_to", "group")
  if found.err and not string.find(found.err, "WRONGTYPE", 1, true) then return found end -- another error
  -- If the task was deleted for one copy, another copy is too late: the first copy may have been run by now.
  local noted = redis.call("HGET", moved, note)
  local outcome = noted and string.sub(noted, 1, #copy + 1) == copy .. ":" and 1 or 0
  if found[1] == "moving" and found[2] == token then
    redis.call("HSET", moved, note, copy .. ":" .. found[3])
    -- A message may name any key as its lock; GET raises if the key is not a string.
    if lock ~= "" and redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
    redis.call("UNLINK", task)
    drop_place(found[4], id)
    redis.call("ZREM", moving, id)
    outcome = 1
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
