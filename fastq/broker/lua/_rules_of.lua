-- Returns the rules of lanes, those of their pools, and that of each. Uses limits, pool_of.
local function rules_of(lanes)
  local asked = {unpack(lanes)}
  for at, lane in ipairs(lanes) do asked[#lanes + at] = (pool_of(lane) or "") .. ":*" end
  asked[#asked + 1] = "*"
  return redis.call("HMGET", limits, unpack(asked))
end
