-- What the scripts of lanes share. Uses task_prefix, limits, turns, full, bell.
local queue_prefix = string.sub(task_prefix, 1, -3)
local function microseconds(number) return string.format("%.0f", number) end
local function now_us()
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end
-- These raise for a key of another type before anything is written; producers have no right to ZCARD.
redis.call("HGET", limits, "")
redis.call("ZRANGE", turns, 0, 0)
redis.call("ZRANGE", full_lanes, 0, 0)
