--[[ sweep_queue: scan a stretch of all keys for keys of a queue that belong to none of its tasks, and delete them.
KEYS[1] pending           asynq:{q}:pending
KEYS[2] active            asynq:{q}:active
KEYS[3] scheduled         asynq:{q}:scheduled
KEYS[4] retry             asynq:{q}:retry
KEYS[5] archived          asynq:{q}:archived
KEYS[6] completed         asynq:{q}:completed
KEYS[7] groups            asynq:{q}:groups
KEYS[8] aggregation_sets  asynq:{q}:aggregation_sets
KEYS[9] lease             asynq:{q}:lease
KEYS[10] paused           asynq:{q}:paused
ARGV[1] queue_prefix      asynq:{q}:
ARGV[2] pattern           queue_prefix as a pattern of SCAN, with * at the end
ARGV[3] cursor            SCAN's: 0 at first, then the one returned, until that is 0
ARGV[4] count             keys to look at, about
builds  queue_prefix .. key, same hash tag
returns list: cursor, number of keys deleted
asynq   none (what RemoveQueue leaves stays forever)
]]
local pending, active, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, groups, aggregation_sets, lease, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local queue_prefix, pattern, cursor, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lists = {pending = pending, active = active}
local sets = {scheduled = scheduled, retry = retry, archived = archived, completed = completed}
local kept = {[groups] = true, [aggregation_sets] = true, [lease] = true, [paused] = true}
for _, each in ipairs({lists, sets}) do
  for _, key in pairs(each) do kept[key] = true end
end

-- A group may have tasks without being listed; its aggregation sets are always listed.
local known_sets
local function is_grouped(id, group)
  local prefix = queue_prefix .. "g:" .. group
  if type(redis.pcall("ZSCORE", prefix, id)) == "string" then return true end
  known_sets = known_sets or redis.call("ZRANGE", aggregation_sets, 0, -1)
  for _, set in ipairs(known_sets) do
    local is_of_group = string.sub(set, 1, #prefix + 1) == prefix .. ":"
    if is_of_group and type(redis.pcall("ZSCORE", set, id)) == "string" then return true end
  end
  return false
end

-- A task that arrived during the deletion is in the list or set of its state. For a long list, this is assumed.
local function is_alive(id)
  local found = redis.pcall("HMGET", queue_prefix .. "t:" .. id, "state", "group")
  local state, group = found[1], found[2]
  if state == "moving" then return true end
  if lists[state] then
    return redis.call("LLEN", lists[state]) > 1000 or redis.call("LPOS", lists[state], id) ~= false
  end
  if sets[state] then return redis.call("ZSCORE", sets[state], id) ~= false end
  return state == "aggregating" and is_grouped(id, group or "")
end

local function is_needed(key)
  local name = string.sub(key, #queue_prefix + 1)
  -- A task between this queue and another is left to its move: one of the two queues has deleted it, or will.
  if kept[key] or name == "moving" or name == "moved" then return true end
  if name == "scheduled_groups" then return redis.call("EXISTS", scheduled) == 1 end
  -- Without a rule, a lane would become a group, which must not be aggregated.
  if name == "limits" then return redis.call("EXISTS", groups) == 1 end
  if string.sub(name, 1, 2) == "t:" then return is_alive(string.sub(name, 3)) end
  if string.sub(name, 1, 2) == "g:" then return redis.call("TYPE", key).ok == "zset" end
  if string.sub(name, 1, 7) == "unique:" then
    local owner = redis.pcall("GET", key)
    return type(owner) == "string" and is_alive(owner)
  end
  return false
end

local found = redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", count)
local doomed, deleted = {}, 0
for _, key in ipairs(found[2]) do
  if not is_needed(key) then doomed[#doomed + 1] = key end
end
for _, key in ipairs(doomed) do deleted = deleted + redis.call("UNLINK", key) end
return {found[1], deleted}
