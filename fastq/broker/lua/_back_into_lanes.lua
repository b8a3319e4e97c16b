-- Moves tasks from pending, where the script has put them, to the front of their lanes. Uses ended, order, groups,
-- only_lanes.
local back = only_lanes(order)
for _, lane in ipairs(back) do
  local waiting = queue_prefix .. "g:" .. lane
  for _, id in ipairs(ended[lane]) do
    if type(redis.pcall("ZADD", waiting, 0, id)) == "number" then
      redis.call("LREM", pending, -1, id)
      redis.call("HSET", task_prefix .. id, "state", "aggregating")
      redis.call("HDEL", task_prefix .. id, "pending_since")
    end
  end
  redis.call("SADD", groups, lane)
end
give_turns(back)
