-- Gives turns to the lanes of due tasks. A lane in which a due task has kept its place is a sequence that waits for
-- this task, so the lane no longer counts as full. Uses named_ids, lane_of, only_lanes, orders_of, rank, now.
local names, is_named, ranked = {}, {}, {}
for nth in ipairs(named_ids) do
  local lane = lane_of[nth]
  if lane and not is_named[lane] then
    is_named[lane] = true
    names[#names + 1] = lane
  end
  if lane and redis.pcall("SISMEMBER", queue_prefix .. "h:" .. lane, named_ids[nth]) == 1 then
    redis.call("ZREM", full_lanes, lane)
  end
  local priority = lane and redis.pcall("HGET", task_prefix .. named_ids[nth], "priority")
  if type(priority) == "string" then ranked[nth] = priority end
end
local orders = next(ranked) and orders_of(names)
for nth, priority in pairs(ranked) do
  local lane = lane_of[nth]
  redis.pcall("ZADD", queue_prefix .. "g:" .. lane, "XX", rank(now, priority, orders[lane]), named_ids[nth])
end
give_turns(only_lanes(names))
