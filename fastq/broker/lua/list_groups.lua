--[[ list_groups: read some of a queue's groups with their numbers of tasks.
KEYS[1] groups        asynq:{q}:groups
ARGV[1] group_prefix  asynq:{q}:g:
ARGV[2] cursor        what the call before returned first, "0" to begin
ARGV[3] count         groups to look at, about
builds  group_prefix .. group, same hash tag
returns list: cursor for the next call ("0" at the end), then group, size, group, size, ...; a group may come twice
asynq   groupStatsCmd (which goes through all groups at once)
]]
local groups = KEYS[1]
local group_prefix, cursor, count = ARGV[1], ARGV[2], ARGV[3]
local found = redis.call("SSCAN", groups, cursor, "COUNT", count)
local reply = {found[1]}
for _, group in ipairs(found[2]) do
  reply[#reply + 1] = group
  reply[#reply + 1] = redis.call("ZCARD", group_prefix .. group)
end
return reply
