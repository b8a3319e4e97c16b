-- Moves the tasks that the script has put into pending to the front of their lanes. Uses ended, order, groups,
-- only_lanes, orders_of, rank, pending_since.
local back = only_lanes(order)
local orders = orders_of(back)
for _, lane in ipairs(back) do
  local waiting = queue_prefix .. "g:" .. lane
  local is_lifo, front = orders[lane] == "lifo", 0
  local above = is_lifo and (tonumber(redis.call("ZRANGE", waiting, -1, -1, "WITHSCORES")[2]) or 0) + 1
  for _, id in ipairs(ended[lane]) do
    if is_lifo then
      -- A lifo lane is served from its highest score down. `above` puts the task before all that wait now, `ranked`
      -- also before later tasks with a lower priority.
      local word = redis.pcall("HGET", task_prefix .. id, "priority")
      local ranked = rank(pending_since / 1000000000, type(word) == "string" and word or "", "lifo")
      front = string.format("%.0f", math.max(above, ranked))
    end
    if type(redis.pcall("ZADD", waiting, front, id)) == "number" then
      redis.call("LREM", pending, -1, id)
      redis.call("HSET", task_prefix .. id, "state", "aggregating")
      redis.call("HDEL", task_prefix .. id, "pending_since")
    end
  end
  redis.call("SADD", groups, lane)
end
give_turns(back)
