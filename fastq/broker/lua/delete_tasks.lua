--[[ delete_tasks: delete some of the tasks of a state, with their unique locks.
KEYS[1] source       asynq:{q}:scheduled or another list or set of ids
KEYS[2] lease        asynq:{q}:lease
KEYS[3] groups       asynq:{q}:groups
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        the state of the tasks in the source
ARGV[3] group        the group's name if the source is a group, else ""
ARGV[4] count        ids to take at most
ARGV[5] last         the newest id of a list, or greatest score, to take; "" for no bound
ARGV[6] max_bytes    bytes of messages and results to delete (which takes time); the first task beyond is the last
builds  task_prefix .. id, queue_prefix .. "h:" .. its group, and lock keys asynq:{q}:unique:..., same hash tag
returns list: ids taken, tasks deleted, then id, message of each deleted one that may have a lock its hash does not name
asynq   deleteAllCmd, deleteAllPendingCmd, deleteAllAggregatingCmd (all tasks in one call)
]]
local source, lease, groups = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, state, group, count, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local max_bytes = tonumber(ARGV[6])

-- include: take_some

-- include: drop_place

local reply, taken, deleted, bytes = {0, 0}, 0, 0, 0
for _, id in ipairs(ids_to_take()) do
  local task = task_prefix .. id
  local found = redis.pcall("HMGET", task, "state", "unique_key", "group")
  local its_state, lock, its_group = found[1], found[2], found[3]
  if is_here(id, its_state) then
    if lock then
      if redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
    elseif its_group then
      local message = redis.call("HGET", task, "msg") or ""
      reply[#reply + 1] = id
      reply[#reply + 1] = message
    end
    bytes = bytes + redis.call("HSTRLEN", task, "msg") + redis.call("HSTRLEN", task, "result")
    redis.call("UNLINK", task)
    drop_place(its_group, id)
    deleted = deleted + 1
  end
  taken = taken + 1
  if bytes >= max_bytes then break end
end
take_off(taken)
reply[1], reply[2] = taken, deleted
return reply
