-- Makes sure that these groups are lanes: if one has no rule, "*" gets a rule that limits nothing, and servers are
-- told. Uses limits, due_channel, only_lanes.
local has_rule_for_all = redis.call("HGET", limits, "*")
local function open_lanes(lanes)
  if #lanes == 0 or has_rule_for_all or #only_lanes(lanes) == #lanes then return end
  redis.call("HSET", limits, "*", "0:0:1:1")
  redis.pcall("PUBLISH", due_channel, "limits")
end
