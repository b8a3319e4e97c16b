-- Lets the lanes of parked tasks rest: their next turn is at the end of the rest, wherever they waited. Uses named_ids,
-- lane_of, outcomes, rests, order, only_lanes.
local until_us, is_lane, began = {}, {}, now_us()
for _, lane in ipairs(only_lanes(order)) do is_lane[lane] = true end
for nth in ipairs(named_ids) do
  local lane = lane_of[nth]
  if lane and is_lane[lane] and (outcomes == 1 or outcomes[nth] == 1) then
    until_us[lane] = math.max(until_us[lane] or 0, began + rests[nth])
  end
end
for lane, rest_until in pairs(until_us) do
  local pool = pool_of(lane)
  if pool then redis.pcall("ZREM", queue_prefix .. "pool:" .. pool, lane) end
  redis.call("ZREM", full_lanes, lane)
  redis.call("ZADD", turns, "GT", microseconds(rest_until), lane)
  ring() -- wakes idle servers, whose next call tells them the time
end
