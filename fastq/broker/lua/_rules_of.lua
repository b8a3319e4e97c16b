-- Returns in one list the rules of the lanes, the rules of their pools, and the rule "*". Uses limits, pool_of.
local function rules_of(lanes)
  local asked = {unpack(lanes)}
  for at, lane in ipairs(lanes) do asked[#lanes + at] = (pool_of(lane) or "") .. ":*" end
  asked[#asked + 1] = "*"
  return redis.call("HMGET", limits, unpack(asked))
end
