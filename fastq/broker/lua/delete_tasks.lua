--[[ delete_tasks: delete some of the tasks of a state, with their unique locks.
KEYS[1] source       asynq:{q}:scheduled or another list or set of ids
KEYS[2] lease        asynq:{q}:lease
KEYS[3] groups       asynq:{q}:groups
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        that of the tasks in the source
ARGV[3] group        its name, if the source is one, else ""
ARGV[4] count        ids to take at most
ARGV[5] last         the newest id of a list, or greatest score, to take; "" for no bound
ARGV[6] max_bytes    messages and results to delete at most (to free much takes long); the first beyond it is the last
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns list: ids taken, tasks deleted, then id, message of each deleted one that may have a lock its hash does not name
asynq   deleteAllCmd, deleteAllPendingCmd, deleteAllAggregatingCmd (all tasks in one call)
]]
local source, lease, groups = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, state, group, count, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local max_bytes = tonumber(ARGV[6])

-- begin: take some
-- Redis has no type for a list that became empty.
local is_list = state == "pending" or state == "active"

-- Returns how many of the oldest of a list to take, none if others took the last one; behind it any number may stand.
local function number_to_take()
  if last == "" then return math.min(count, redis.call("LLEN", source)) end
  local at = redis.call("LPOS", source, last, "RANK", -1, "MAXLEN", count)
  if not at then
    local last_state = redis.pcall("HMGET", task_prefix .. last, "state")[1]
    if last_state == state then return math.min(count, redis.call("LLEN", source)) end
    at = redis.call("LPOS", source, last, "MAXLEN", 50000)
  end
  return at and math.min(count, redis.call("LLEN", source) - at) or 0
end

-- Returns the ids to take: the oldest of a list, those of the lowest scores of a set.
local function ids_to_take()
  if not is_list then
    return redis.call("ZRANGE", source, "-inf", last == "" and "+inf" or last, "BYSCORE", "LIMIT", 0, count)
  end
  local number = number_to_take()
  local ids, oldest_last = {}, number > 0 and redis.call("LRANGE", source, -number, -1) or {}
  for at = #oldest_last, 1, -1 do ids[#ids + 1] = oldest_last[at] end
  return ids
end

-- Takes that many of them off; a group without tasks is listed no more.
local function take_off(number)
  if number == 0 then return end
  if is_list then
    redis.call("LTRIM", source, 0, -number - 1)
  else
    redis.call("ZREMRANGEBYRANK", source, 0, number - 1)
  end
  if group ~= "" and redis.call("EXISTS", source) == 0 then redis.call("SREM", groups, group) end
end

-- An id without a task, or whose task is elsewhere, is taken off and that is all. asynq's archive may break half-way,
-- and leave a task that says it is active.
local function is_here(id, its_state)
  return its_state == state or its_state == "active" and not redis.call("ZSCORE", lease, id)
end
-- end: take some

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
    deleted = deleted + 1
  end
  taken = taken + 1
  if bytes >= max_bytes then break end
end
take_off(taken)
reply[1], reply[2] = taken, deleted
return reply
