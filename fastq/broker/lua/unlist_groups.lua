--[[ unlist_groups: take those of some groups that are empty off the list.
KEYS[1] groups        asynq:{q}:groups
ARGV[1] group_prefix  asynq:{q}:g:
ARGV[2...] names      the groups
builds  group_prefix .. group, same hash tag
returns number of groups taken off
asynq   none
]]
local groups = KEYS[1]
local group_prefix = ARGV[1]
local removed = 0
for at = 2, #ARGV do
  local group = ARGV[at]
  if redis.call("EXISTS", group_prefix .. group) == 0 then removed = removed + redis.call("SREM", groups, group) end
end
return removed
