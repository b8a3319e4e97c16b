-- Returns the orders of lanes, by name; most have none. Uses rules_of.
local function orders_of(lanes)
  if #lanes == 0 then return {} end
  local rules, orders = rules_of(lanes), {}
  for at, lane in ipairs(lanes) do
    local rule = rules[at]
    -- A rule that only pauses the lane has no order: the order of "*" applies.
    if not rule or string.sub(rule, 1, 8) == "0:0:0:0:" then rule = rules[#rules] or "" end
    orders[lane] = string.match(rule, "^%d+:%d+:%d+:%d+:(%l+)")
  end
  return orders
end
