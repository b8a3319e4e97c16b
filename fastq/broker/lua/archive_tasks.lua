--[[ archive_tasks: move some of the tasks of a state to archived, and keep that set within its bounds.
KEYS[1] source       asynq:{q}:scheduled or another list or set of ids
KEYS[2] lease        asynq:{q}:lease
KEYS[3] groups       asynq:{q}:groups
KEYS[4] archived     asynq:{q}:archived
KEYS[5] archive_rule asynq:{q}:archive_rule
KEYS[6] paused       asynq:{q}:paused
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        that of the tasks in the source
ARGV[3] group        its name, if the source is one, else ""
ARGV[4] count        ids to take at most
ARGV[5] last         the newest id of a list, or greatest score, to take; "" for no bound
ARGV[6] now            unix seconds
ARGV[7] expire_before  unix seconds; what was archived until then is deleted
ARGV[8] max_size       tasks that the archive holds at most
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns list: ids taken, tasks moved
asynq   archiveAllCmd, archiveAllPendingCmd, archiveAllAggregatingCmd (all tasks in one call; the archive is trimmed
  without the tasks' hashes)
]]
local source, lease, groups, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local archive_rule, paused = KEYS[5], KEYS[6]
local task_prefix, state, group, count, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local now, expire_before, max_size = ARGV[6], ARGV[7], tonumber(ARGV[8])

-- begin: take some
-- Redis has no type for a list that became empty.
local is_list = state == "pending" or state == "active"

-- Returns how many of the oldest of a list to take, none if others took the last one; behind it any number may stand.
local function number_to_take()
  if last == "" then return math.min(count, redis.call("LLEN", source)) end
  local at = redis.call("LPOS", source, last, "RANK", -1, "MAXLEN", count)
  if not at then
    local last_state = redis.pcall("HMGET", task_prefix .. last, "state")[1]
    if last_state == state then return math.min(count, redis.call("LLEN", source)) end
    at = redis.call("LPOS", source, last, "MAXLEN", 50000)
  end
  return at and math.min(count, redis.call("LLEN", source) - at) or 0
end

-- Returns the ids to take: the oldest of a list, those of the lowest scores of a set.
local function ids_to_take()
  if not is_list then
    return redis.call("ZRANGE", source, "-inf", last == "" and "+inf" or last, "BYSCORE", "LIMIT", 0, count)
  end
  local number = number_to_take()
  local ids, oldest_last = {}, number > 0 and redis.call("LRANGE", source, -number, -1) or {}
  for at = #oldest_last, 1, -1 do ids[#ids + 1] = oldest_last[at] end
  return ids
end

-- Takes that many of them off; a group without tasks is listed no more.
local function take_off(number)
  if number == 0 then return end
  if is_list then
    redis.call("LTRIM", source, 0, -number - 1)
  else
    redis.call("ZREMRANGEBYRANK", source, 0, number - 1)
  end
  if group ~= "" and redis.call("EXISTS", source) == 0 then redis.call("SREM", groups, group) end
end

-- An id without a task, or whose task is elsewhere, is taken off and that is all. asynq's archive may break half-way,
-- and leave a task that says it is active.
local function is_here(id, its_state)
  return its_state == state or its_state == "active" and not redis.call("ZSCORE", lease, id)
end
-- end: take some

local taken, moved = ids_to_take(), {}
-- First what frees memory: a Redis that is out of it lets the writes after that pass.
take_off(#taken)
for _, id in ipairs(taken) do
  local task = task_prefix .. id
  if is_here(id, redis.pcall("HMGET", task, "state")[1]) then
    redis.call("HSET", task, "state", "archived")
    moved[#moved + 1] = now
    moved[#moved + 1] = id
  end
end
if #moved > 0 then redis.call("ZADD", archived, unpack(moved)) end

-- begin: trim archive
-- 750 a call at most: what others overfilled by far still gets smaller, since a call adds no more than 500.
local function drop(ids)
  if #ids == 0 then return end
  local doomed = {}
  for _, id in ipairs(ids) do
    local hash = task_prefix .. id
    local lock = redis.pcall("HMGET", hash, "unique_key")[1]
    if lock and redis.pcall("GET", lock) == id then doomed[#doomed + 1] = lock end
    doomed[#doomed + 1] = hash
  end
  redis.call("ZREM", archived, unpack(ids))
  redis.call("DEL", unpack(doomed))
end
-- What a server has set for this queue comes before the caller's bounds, which are asynq's.
local rule = redis.pcall("HMGET", archive_rule, "max", "ttl", "full")
local most, full = tonumber(rule[1] or nil) or max_size, rule[3]
if tonumber(rule[2] or nil) then expire_before = now - rule[2] end
if full ~= "spill" then -- a server's janitor writes the oldest to a file, and deletes them then
  local doomed = redis.call("ZRANGE", archived, "-inf", expire_before, "BYSCORE", "LIMIT", 0, 500)
  drop(doomed)
  local dropped, excess = #doomed, redis.call("ZCARD", archived) - most
  if full == "pause" then
    if excess >= 0 and redis.call("EXISTS", paused) == 0 then redis.call("SET", paused, now) end
  elseif excess > 0 then
    doomed = redis.call("ZRANGE", archived, 0, math.min(excess, 750 - dropped) - 1)
    drop(doomed)
    dropped = dropped + #doomed
  end
  if dropped > 0 then redis.pcall("HINCRBY", archive_rule, "dropped", dropped) end
end
-- end: trim archive
return {#taken, #moved / 2}
