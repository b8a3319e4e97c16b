-- Uses task_id, seen_at, the key of each state, groups, aggregation_sets, group_prefix.

-- Takes the id off pending. In a long list it searches only the ends, and around the index where the id was seen.
local function is_off_pending()
  for side = -1, 1, 2 do
    if redis.call("LPOS", pending, task_id, "RANK", side, "MAXLEN", 50000) then
      redis.call("LREM", pending, side, task_id)
      return true
    end
  end
  if seen_at == "none" or redis.call("LLEN", pending) <= 100000 then return true end
  local first = tonumber(seen_at)
  for at, other in ipairs(first and redis.call("LRANGE", pending, first, first + 2000) or {}) do
    if other == task_id then
      -- Redis would walk half the list to close the gap, so the newest task moves into it.
      redis.call("LSET", pending, first + at - 2, redis.call("LPOP", pending))
      return true
    end
  end
  return false
end

-- Takes the id off the list or set of its state. Returns the reason if that is not allowed, or if the id is not there.
local function reason_to_leave(state, group)
  redis.call("SCARD", groups) -- raises if the key has a wrong type, before anything is taken off
  local sets = {scheduled = scheduled, retry = retry, archived = archived, completed = completed}
  if state == "pending" then return not is_off_pending() and "far" or nil end
  if sets[state] then
    redis.call("ZREM", sets[state], task_id)
  elseif state == "aggregating" and redis.call("ZREM", group_prefix .. group, task_id) == 1 then
    if redis.call("EXISTS", group_prefix .. group) == 0 then redis.call("SREM", groups, group) end
  elseif state == "aggregating" then
    for _, set in ipairs(redis.call("ZRANGE", aggregation_sets, 0, 999)) do
      if redis.call("ZSCORE", set, task_id) then return "aggregation" end
    end
  else
    return state
  end
end
