--[[ claim_tasks: take chosen tasks off a list or set, and park them in moving, where no server runs them.
KEYS[1] source       asynq:{q}:scheduled or another list or set of ids
KEYS[2] moving       asynq:{q}:moving
KEYS[3] groups       asynq:{q}:groups
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        the state of the tasks in the source
ARGV[3] group        the group's name if the source is a group, else ""
ARGV[4] token        the move's
ARGV[5] target       the queue that they are to move to
ARGV[6] place        number of older ids in a list, when these were read
ARGV[7...] ids       those to take, 200 at most
builds  task_prefix .. id, same hash tag
returns number of tasks taken
asynq   none
]]
local source, moving, groups = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, state, group, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local target, place = ARGV[5], tonumber(ARGV[6])
local GAP = "\0gap\0"
-- These raise if a key has a wrong type, before a task is taken off the source and cannot be stored.
if group ~= "" then redis.call("SCARD", groups) end
local last = redis.call("ZRANGE", moving, -1, -1, "WITHSCORES")[2]
local position = tonumber(last or 0)

local wanted, chosen = {}, {}
for at = 7, #ARGV do
  local id = ARGV[at]
  local found = redis.pcall("HMGET", task_prefix .. id, "state", "msg")
  if found[1] == state and found[2] then
    wanted[id] = true
    chosen[#chosen + 1] = id
  end
end

-- Parked tasks keep their order.
local function park(id, score)
  position = position + 1
  redis.call(
    "HSET", task_prefix .. id, "state", "moving", "move_state", state, "move_score", score, "move_group", group,
    "move_to", target, "move_token", token
  )
  redis.call("ZADD", moving, position, id)
end

-- Fills gaps deep in a list with the newest tasks: to close the gaps, Redis would walk the list.
local function fill_gaps(kept, taken, window)
  local rest = redis.call("LLEN", source) - place - window
  local newest = rest > 0 and taken > 0 and redis.call("LPOP", source, math.min(rest, taken)) or {}
  for at = #newest, 1, -1 do kept[#kept + 1] = newest[at] end
  for at, id in ipairs(kept) do redis.call("LSET", source, -(place + at), id) end
  if #newest < taken then redis.call("LPOP", source, taken - #newest) end
end

local function take_from_list()
  place = math.max(0, place - 500) -- servers may have taken some of the older ids
  local near = redis.call("LRANGE", source, -(place + 1200), -(place + 1))
  local kept, ids = {}, {}
  for at = #near, 1, -1 do
    local id = near[at]
    local into = wanted[id] and ids or kept
    into[#into + 1] = id
  end
  if #ids == 0 then return 0 end
  if place > 50000 then
    fill_gaps(kept, #ids, #near)
  else
    for at, id in ipairs(near) do
      if wanted[id] then redis.call("LSET", source, -(place + #near - at + 1), GAP) end
    end
    redis.call("LREM", source, -#ids, GAP)
  end
  for _, id in ipairs(ids) do park(id, "") end
  return #ids
end

local function take_from_set()
  local taken = 0
  for _, id in ipairs(chosen) do
    local score = redis.call("ZSCORE", source, id)
    if score then
      redis.call("ZREM", source, id)
      park(id, score)
      taken = taken + 1
    end
  end
  if group ~= "" and redis.call("EXISTS", source) == 0 then redis.call("SREM", groups, group) end
  return taken
end

if redis.call("TYPE", source).ok == "list" then return take_from_list() end
return take_from_set()
