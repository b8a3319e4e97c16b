-- Returns which of the names are lanes. A group is a lane if it, its pool, or "*" (all lanes) has a rule.
-- Uses rules_of.
local function only_lanes(names)
  if #names == 0 then return names end
  local rules, found = rules_of(names), {}
  for at, each in ipairs(names) do
    if rules[at] or rules[#names + at] or rules[#rules] then found[#found + 1] = each end
  end
  return found
end
