-- Returns the score of a task in its lane. `word` is its priority, or its priority, a colon and its deadline in unix
-- seconds. Each step of a priority counts as 10 million seconds, longer than any task waits. A lifo lane is served from
-- its highest score, other lanes from their lowest.
local function rank(unix_s, word, order)
  local priority, deadline = string.match(word, "^(%-?%d+):?(%d*)$")
  if not priority then return string.format("%.0f", unix_s) end
  -- A task with a deadline comes after the tasks put at the front, whose score is 0. It comes before tasks without one,
  -- whose score is their time of enqueueing (less 31 years for a priority of 100).
  if order == "deadline" and deadline ~= "" then
    return string.format("%.0f", math.max(1, math.min(deadline - 1200000000, unix_s - 1)))
  end
  local earlier = 10000000 * priority
  return string.format("%.0f", order == "lifo" and unix_s + earlier or unix_s - earlier)
end
