-- Moves tasks from pending, where the script has put them, to the front of their lanes. Uses ended, order, groups,
-- only_lanes, orders_of.
local back = only_lanes(order)
local orders = orders_of(back)
for _, lane in ipairs(back) do
  local waiting = queue_prefix .. "g:" .. lane
  local front = 0
  if orders[lane] == "lifo" then
    front = string.format("%.0f", (tonumber(redis.call("ZRANGE", waiting, -1, -1, "WITHSCORES")[2]) or 0) + 1)
  end
  for _, id in ipairs(ended[lane]) do
    if type(redis.pcall("ZADD", waiting, front, id)) == "number" then
      redis.call("LREM", pending, -1, id)
      redis.call("HSET", task_prefix .. id, "state", "aggregating")
      redis.call("HDEL", task_prefix .. id, "pending_since")
    end
  end
  redis.call("SADD", groups, lane)
end
give_turns(back)
