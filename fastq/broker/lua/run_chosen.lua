--[[ run_chosen: move some tasks of a set to pending, if they are still there and unchanged.
KEYS[1] source       asynq:{q}:retry or asynq:{q}:archived
KEYS[2] pending      asynq:{q}:pending
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        the state of the tasks in the source
ARGV[3] now_ns       unix nanoseconds
ARGV[4...] tasks     two values each: id, SHA-1 of the message that was seen, in hex, or "" for any
builds  task_prefix .. id, same hash tag
returns list: ids asked for, tasks moved
asynq   none
]]
local source, pending = KEYS[1], KEYS[2]
local task_prefix, state, now_ns = ARGV[1], ARGV[2], ARGV[3]
-- Raises if the key has a wrong type, before a task is taken off the source and cannot be stored.
redis.call("LLEN", pending)
-- include: forget
local asked, moved = 0, {}
for at = 4, #ARGV, 2 do
  local id, digest = ARGV[at], ARGV[at + 1]
  local task = task_prefix .. id
  local found = redis.pcall("HMGET", task, "state", "msg")
  local is_same = found[1] == state and found[2] and (digest == "" or redis.sha1hex(found[2]) == digest)
  if is_same and redis.call("ZREM", source, id) == 1 then
    redis.call("HSET", task, "state", "pending", "pending_since", now_ns)
    forget(task)
    moved[#moved + 1] = id
  end
  asked = asked + 1
end
if #moved > 0 then redis.call("LPUSH", pending, unpack(moved)) end
return {asked, #moved}
