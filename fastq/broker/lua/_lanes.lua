-- Helpers of the scripts for lanes. Uses task_prefix.
local queue_prefix = string.sub(task_prefix, 1, -3)
local function microseconds(number) return string.format("%.0f", number) end
local function now_us()
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end
