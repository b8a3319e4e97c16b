--[[ reclaim_aggregation_set: return tasks of a set to their group, with the scores they had; an empty set is deleted.
KEYS[1] aggregation_set   asynq:{q}:g:{group}:{set}
KEYS[2] aggregation_sets  asynq:{q}:aggregation_sets
KEYS[3] group             asynq:{q}:g:{group}
KEYS[4] groups            asynq:{q}:groups
ARGV[1] name              the group's
ARGV[2] start             rank of the first task to give back; 0 for all
ARGV[3] limit             tasks at most
builds  none
returns number of tasks given back, -1 if the set was marked as aggregated
asynq   reclaimStateAggregationSetsCmd (all sets in one call; it does not list the group)
]]
local aggregation_set, aggregation_sets, group, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, start, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call("ZSCORE", aggregation_sets, aggregation_set) == "inf" then return -1 end

local members = redis.call("ZRANGE", aggregation_set, start, start + limit - 1, "WITHSCORES")
local scored = {}
for at = 1, #members, 2 do
  scored[at], scored[at + 1] = members[at + 1], members[at]
end
if #members > 0 then
  redis.call("SADD", groups, name)
  redis.call("ZADD", group, unpack(scored))
  redis.call("ZREMRANGEBYRANK", aggregation_set, start, start + limit - 1)
end
if redis.call("EXISTS", aggregation_set) == 0 then redis.call("ZREM", aggregation_sets, aggregation_set) end
return #members / 2
