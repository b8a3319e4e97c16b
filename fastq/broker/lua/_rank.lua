-- Returns the score of a task in its lane, given its priority, after which may come a colon and its deadline in unix
-- seconds. Each step of a priority counts as 10 million seconds, longer than any task waits. A lifo lane begins with
-- its highest score, other lanes with their lowest.
local function rank(unix_s, word, order)
  local priority, deadline = string.match(word, "^(%-?%d+):?(%d*)$")
  if not priority then return string.format("%.0f", unix_s) end
  -- So a deadline comes after what was put at the front, which has the score 0, and before any time of enqueueing
  -- (less the priority of a task without a deadline: 100 is worth 31 years).
  if order == "deadline" and deadline ~= "" then
    return string.format("%.0f", math.max(1, math.min(deadline - 1200000000, unix_s - 1)))
  end
  local earlier = 10000000 * priority
  return string.format("%.0f", order == "lifo" and unix_s + earlier or unix_s - earlier)
end
