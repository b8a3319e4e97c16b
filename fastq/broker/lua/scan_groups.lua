--[[ scan_groups: scan a stretch of a queue's groups for those that are due for aggregation; changes nothing.
KEYS[1] groups        asynq:{q}:groups
ARGV[1] group_prefix  asynq:{q}:g:
ARGV[2] cursor        SSCAN's: 0 at first, then the one returned, until that is 0
ARGV[3] count         groups to look at, about
ARGV[4] now           unix seconds
ARGV[5] grace         seconds that a group waits for another task
ARGV[6] max_delay     seconds that its oldest task waits at most, 0 for no limit
ARGV[7] max_size      number of tasks at which it is due at once, 0 for no limit
builds  group_prefix .. name, same hash tag
returns list: cursor, the unix seconds at which the next group is due or "", then the names of the groups that are due
asynq   none (SMEMBERS, then aggregationCheckCmd for each)
]]
local groups = KEYS[1]
local group_prefix, cursor, count, now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local grace, max_delay, max_size = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

-- include: due_at

local found = redis.call("SSCAN", groups, cursor, "COUNT", count)
local reply, next_due = {found[1], ""}, nil
for _, name in ipairs(found[2]) do
  local at = due_at(group_prefix .. name)
  if at and at <= now then
    reply[#reply + 1] = name
  elseif at and (not next_due or at < next_due) then
    next_due = at
  end
end
if next_due then reply[2] = string.format("%.17g", next_due) end
return reply
