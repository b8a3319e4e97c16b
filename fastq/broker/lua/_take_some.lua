-- Uses source, state, group, count, last, lease, groups, task_prefix.

-- These raise if a key has a wrong type, before anything is taken off.
redis.call("ZCARD", lease)
if group ~= "" then redis.call("SCARD", groups) end
-- The state tells whether the source is a list, because an empty list has no type in Redis.
local is_list = state == "pending" or state == "active"

-- Returns how many of a list's oldest ids to take: all up to `last`, however many have come after it; 0 if `last` has
-- left the list.
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

-- Returns the ids to take: the oldest of a list, or those with the lowest scores of a set.
local function ids_to_take()
  if not is_list then
    return redis.call("ZRANGE", source, "-inf", last == "" and "+inf" or last, "BYSCORE", "LIMIT", 0, count)
  end
  local number = number_to_take()
  local ids, oldest_last = {}, number > 0 and redis.call("LRANGE", source, -number, -1) or {}
  for at = #oldest_last, 1, -1 do ids[#ids + 1] = oldest_last[at] end
  return ids
end

-- Takes `number` ids off the source; a group that is empty then is listed no longer.
local function take_off(number)
  if number == 0 then return end
  if is_list then
    redis.call("LTRIM", source, 0, -number - 1)
  else
    redis.call("ZREMRANGEBYRANK", source, 0, number - 1)
  end
  if group ~= "" and redis.call("EXISTS", source) == 0 then redis.call("SREM", groups, group) end
end

-- Returns whether an id's task is in the source; other ids are only taken off. A task in state active without a lease
-- counts as in the source: asynq's archive script may break half-way and leave such a task.
local function is_here(id, its_state)
  return its_state == state or its_state == "active" and not redis.call("ZSCORE", lease, id)
end
