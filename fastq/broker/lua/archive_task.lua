--[[ archive_task: move a task that nobody works on to archived, and keep that set within its bounds.
KEYS[1] pending           asynq:{q}:pending
KEYS[2] scheduled         asynq:{q}:scheduled
KEYS[3] retry             asynq:{q}:retry
KEYS[4] archived          asynq:{q}:archived
KEYS[5] completed         asynq:{q}:completed
KEYS[6] groups            asynq:{q}:groups
KEYS[7] aggregation_sets  asynq:{q}:aggregation_sets
KEYS[8] archive_rule      asynq:{q}:archive_rule
KEYS[9] paused            asynq:{q}:paused
ARGV[1] task_prefix       asynq:{q}:t:
ARGV[2] group_prefix      asynq:{q}:g:
ARGV[3] task_id           the task's
ARGV[4] seen_at           where it was seen in pending, counted from the head; "" not looked for, "none" not there
ARGV[5] expected          the state that it must be in; "" whatever it is
ARGV[6] now               unix seconds
ARGV[7] expire_before     unix seconds; what was archived until then is deleted
ARGV[8] max_size          tasks that the archive holds at most
builds  task_prefix .. task_id, group_prefix .. group, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 archived | 0 no such task | the reason why not: its state, aggregation (it is being made into another), far
  (too deep in pending to be found at once)
asynq   archiveTaskCmd (which trims the archive without the tasks' hashes)
]]
local pending, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local completed, groups, aggregation_sets = KEYS[5], KEYS[6], KEYS[7]
local archive_rule, paused = KEYS[8], KEYS[9]
local task_prefix, group_prefix, task_id, seen_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local expected, now, expire_before, max_size = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])

-- begin: take off
-- Takes the id off pending, looking at no more than the ends of a long list, and around where it was seen.
local function is_off_pending()
  for side = -1, 1, 2 do
    if redis.call("LPOS", pending, task_id, "RANK", side, "MAXLEN", 50000) then
      redis.call("LREM", pending, side, task_id)
      return true
    end
  end
  if seen_at == "none" or redis.call("LLEN", pending) <= 100000 then return true end
  local first = tonumber(seen_at)
  for at, other in ipairs(first and redis.call("LRANGE", pending, first, first + 2000) or {}) do
    if other == task_id then
      -- To close the gap Redis would go through half a list; so the newest task moves up into it.
      redis.call("LSET", pending, first + at - 2, redis.call("LPOP", pending))
      return true
    end
  end
  return false
end

-- Takes the id off where its state says it is; returns the reason if it must not be or was not found there.
local function reason_to_leave(state, group)
  local sets = {scheduled = scheduled, retry = retry, archived = archived, completed = completed}
  if state == "pending" then return not is_off_pending() and "far" or nil end
  if sets[state] then
    redis.call("ZREM", sets[state], task_id)
  elseif state == "aggregating" and redis.call("ZREM", group_prefix .. group, task_id) == 1 then
    if redis.call("EXISTS", group_prefix .. group) == 0 then redis.call("SREM", groups, group) end
  elseif state == "aggregating" then
    for _, set in ipairs(redis.call("ZRANGE", aggregation_sets, 0, 999)) do
      if redis.call("ZSCORE", set, task_id) then return "aggregation" end
    end
  else
    return state
  end
end
-- end: take off

local task = task_prefix .. task_id
local found = redis.pcall("HMGET", task, "state", "group", "msg")
local state, group, message = found[1], found[2], found[3]
if not (state and message) then return 0 end
if expected ~= "" and state ~= expected then return state end
local reason = state == "archived" and state or reason_to_leave(state, group or "")
if reason then return reason end
redis.call("ZADD", archived, now, task_id)
redis.call("HSET", task, "state", "archived")

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
return 1
