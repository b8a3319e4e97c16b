--[[ enqueue_lane: put tasks into their lanes, each unless its id exists or its unique lock is held.
KEYS[1] groups         asynq:{q}:groups
KEYS[2] limits         asynq:{q}:limits
KEYS[3] turns          asynq:{q}:turns
KEYS[4] full_lanes     asynq:{q}:full
KEYS[5] bell           asynq:{q}:bell
ARGV[1] task_prefix    asynq:{q}:t:
ARGV[2] group_prefix   asynq:{q}:g:
ARGV[3] added_at       unix seconds
ARGV[4] due_channel    asynq:{q}:due, told if this adds a rule
ARGV[5] width          values a task: 5, or 6 with priorities
ARGV[6...] tasks       width values for each: id, message, lane, lock key or "", lock seconds, priority:deadline
builds  task_prefix .. id, group_prefix .. lane, queue_prefix .. "pool:" .. pool, and lock keys asynq:{q}:unique:...,
  same hash tag
returns 1 when every task was put, else a list: 1 put | 0 id exists | -1 lock held
asynq   none (its addToGroupCmd puts tasks into groups; sweep_lanes finds those that are lanes)
]]
local groups, limits, turns, full_lanes, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task_prefix, group_prefix, added_at, due_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local width = tonumber(ARGV[5])
-- include: pools
-- include: lanes
-- include: lane_keys
-- include: turns

-- include: rules_of
-- include: lane_rules

-- include: new_lanes
-- include: orders
-- include: rank

local outcomes, refused, members, lanes = {}, false, {}, {}
for at = 6, #ARGV, width do
  local lane = ARGV[at + 2]
  if not members[lane] then
    members[lane] = {}
    lanes[#lanes + 1] = lane
    -- Raises for a key of another type before anything is written.
    redis.call("ZRANGE", group_prefix .. lane, 0, 0)
  end
end
local orders = width > 5 and orders_of(lanes) or {}
local put = {}
for at = 6, #ARGV, width do
  local id, message, lane, lock = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local task = task_prefix .. id
  local outcome = 1
  if redis.call("EXISTS", task) == 1 then
    outcome = 0
  elseif lock ~= "" and redis.call("EXISTS", lock) == 1 then
    outcome = -1
  else
    local mine = members[lane]
    if #mine == 0 then
      redis.call("SADD", groups, lane) -- first: it raises for a wrong type, which producers may not check
      put[#put + 1] = lane
    end
    if lock ~= "" then redis.call("SET", lock, id, "EX", ARGV[at + 4]) end
    redis.call("HSET", task, "msg", message, "state", "aggregating", "group", lane)
    if lock ~= "" then redis.call("HSET", task, "unique_key", lock) end
    local score = width > 5 and rank(added_at, ARGV[at + 5], orders[lane]) or added_at
    if score ~= added_at then redis.call("HSET", task, "priority", ARGV[at + 5]) end
    mine[#mine + 1] = score
    mine[#mine + 1] = id
  end
  if outcome ~= 1 then refused = true end
  outcomes[#outcomes + 1] = outcome
end
for _, lane in ipairs(put) do redis.call("ZADD", group_prefix .. lane, unpack(members[lane])) end
open_lanes(put)
give_turns(put)
if refused then return outcomes end
return 1
