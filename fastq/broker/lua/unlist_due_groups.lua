--[[ unlist_due_groups: take empty groups off the list for which no task is scheduled any more; count groups and sets.
KEYS[1] groups            asynq:{q}:groups
KEYS[2] scheduled         asynq:{q}:scheduled
KEYS[3] scheduled_groups  asynq:{q}:scheduled_groups
KEYS[4] aggregation_sets  asynq:{q}:aggregation_sets
ARGV[1] group_prefix      asynq:{q}:g:
ARGV[2] limit             groups to look at, at most
builds  group_prefix .. group, same hash tag
returns list: groups looked at, groups taken off, groups left on the list, aggregation sets
asynq   none (its schedule scripts forget the group)
]]
local groups, scheduled, scheduled_groups, aggregation_sets = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group_prefix, limit = ARGV[1], ARGV[2]
-- These raise if a key has a wrong type, before anything is written.
local listed, sets = redis.call("SCARD", groups), redis.call("ZCARD", aggregation_sets)
-- A group's score is the time at which its last task is due. If the first of all scheduled tasks is due after that, no
-- scheduled task belongs to the group: all were forwarded or removed.
local first = redis.call("ZRANGE", scheduled, 0, 0, "WITHSCORES")[2]
local before = first and "(" .. first or "+inf"
local names = redis.call("ZRANGE", scheduled_groups, "-inf", before, "BYSCORE", "LIMIT", 0, limit)
local removed = 0
for _, name in ipairs(names) do
  if redis.call("EXISTS", group_prefix .. name) == 0 then removed = removed + redis.call("SREM", groups, name) end
end
if #names > 0 then redis.call("ZREM", scheduled_groups, unpack(names)) end
return {#names, removed, listed - removed, sets}
