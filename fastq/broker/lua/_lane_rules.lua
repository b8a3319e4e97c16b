-- A group that has a rule is a lane: its own, its pool's, or "*" for all. Uses limits, due_channel.
local function rules_of(lanes)
  local asked = {unpack(lanes)}
  for at, lane in ipairs(lanes) do asked[#lanes + at] = (pool_of(lane) or "") .. ":*" end
  asked[#asked + 1] = "*"
  return redis.call("HMGET", limits, unpack(asked))
end
local function only_lanes(names)
  if #names == 0 then return names end
  local rules, found = rules_of(names), {}
  for at, each in ipairs(names) do
    if rules[at] or rules[#names + at] or rules[#rules] then found[#found + 1] = each end
  end
  return found
end
