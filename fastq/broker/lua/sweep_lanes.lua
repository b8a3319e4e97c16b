--[[ sweep_lanes: give a turn to lanes that asynq has filled, or that were groups before they had a rule.
KEYS[1] groups         asynq:{q}:groups
KEYS[2] limits         asynq:{q}:limits
KEYS[3] turns          asynq:{q}:turns
KEYS[4] full_lanes     asynq:{q}:full
KEYS[5] bell           asynq:{q}:bell
ARGV[1] task_prefix    asynq:{q}:t:
ARGV[2] cursor         SSCAN's: 0 at first, then the cursor returned, until that is 0
ARGV[3] count          groups to look at, about
builds  queue_prefix .. "g:" .. lane, queue_prefix .. "pool:" .. pool, same hash tag
returns list: cursor, number of lanes that have got a turn
asynq   none
]]
local groups, limits, turns, full_lanes, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task_prefix, cursor, count = ARGV[1], ARGV[2], ARGV[3]
-- include: pools

-- include: lanes
-- include: lane_keys

-- include: turns

-- include: rules_of
-- include: lane_rules

local found = redis.call("SSCAN", groups, cursor, "COUNT", count)
local names, without = found[2], {}
if #names > 0 then
  local have = redis.call("ZMSCORE", turns, unpack(names))
  for at, name in ipairs(names) do
    local pool = pool_of(name)
    local waits = have[at] or pool and type(redis.pcall("ZSCORE", queue_prefix .. "pool:" .. pool, name)) == "string"
    if not waits and redis.call("EXISTS", queue_prefix .. "g:" .. name) == 1 then without[#without + 1] = name end
  end
end
local lanes = only_lanes(without)
give_turns(lanes)
return {found[1], #lanes}
