-- Returns the score of a task with a priority: each step counts as 10 million seconds, longer than any task waits. A
-- lifo lane begins with its highest score, other lanes with their lowest.
local function rank(unix_s, priority, order)
  local earlier = 10000000 * priority
  return string.format("%.0f", order == "lifo" and unix_s + earlier or unix_s - earlier)
end
