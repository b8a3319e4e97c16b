-- Returns the score of a task with a priority: as if it had come so much earlier that none waits as long; later, where
-- the highest score is the first.
local function rank(unix_s, priority, order)
  local earlier = 10000000 * priority
  return string.format("%.0f", order == "lifo" and unix_s + earlier or unix_s - earlier)
end
