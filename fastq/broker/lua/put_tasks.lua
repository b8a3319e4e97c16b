--[[ put_tasks: put tasks into a queue in the state that they had elsewhere, each unless its id exists.
KEYS[1] pending       asynq:{q}:pending
KEYS[2] scheduled     asynq:{q}:scheduled
KEYS[3] retry         asynq:{q}:retry
KEYS[4] archived      asynq:{q}:archived
KEYS[5] completed     asynq:{q}:completed
KEYS[6] groups        asynq:{q}:groups
KEYS[7] moving        asynq:{q}:moving
KEYS[8] scheduled_groups  asynq:{q}:scheduled_groups
ARGV[1] task_prefix   asynq:{q}:t:
ARGV[2] group_prefix  asynq:{q}:g:
ARGV[3] token         the token of a move, which parks its tasks in moving if their locks are free; else ""
ARGV[4] is_trial      1 to only tell what would be done, else ""
ARGV[5] width         values a task
ARGV[6] most_archived  size of archived at which no task is put there; a move's are parked, whatever its size
ARGV[7...] tasks      width values each: id, state, score, group, lock key or "", its milliseconds or "", fields or ""
builds  task_prefix .. id, group_prefix .. group, lock keys asynq:{q}:unique:..., same hash tag
returns list: 1 put | 2 put, but its lock is another's | 3 parked by this move before | 0 id exists | -1 not parked,
  since its lock is another's | -2 archived is full
asynq   none
]]
local pending, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local completed, groups, moving, scheduled_groups = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local task_prefix, group_prefix, token, is_trial, width = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local most_archived = tonumber(ARGV[6])
local sets = {scheduled = scheduled, retry = retry, archived = archived, completed = completed, moving = moving}
-- These raise if a key has a wrong type, before anything is written.
redis.call("LLEN", pending)
redis.call("SCARD", groups)
redis.call("ZCARD", scheduled_groups)
for _, set in pairs(sets) do redis.call("ZCARD", set) end
for at = 7, #ARGV, width do
  if ARGV[at + 1] == "aggregating" then redis.call("ZCARD", group_prefix .. ARGV[at + 3]) end
end

-- Takes the lock; in a trial, only returns whether it could be taken.
local function has_lock(lock, id, lock_ms)
  if lock == "" then return true end
  if is_trial == "1" then return redis.call("EXISTS", lock) == 0 end
  if lock_ms == "" then return redis.call("SET", lock, id, "NX") end
  return redis.call("SET", lock, id, "NX", "PX", lock_ms)
end

local room = most_archived - redis.call("ZCARD", archived)

local function outcome_of(id, state, lock, lock_ms)
  local task = task_prefix .. id
  if redis.call("EXISTS", task) == 1 then
    local found = token ~= "" and redis.pcall("HMGET", task, "state", "move_token") or {}
    return found[1] == "moving" and found[2] == token and 3 or 0
  end
  if state == "archived" and room <= 0 then return -2 end
  if has_lock(lock, id, lock_ms) then return 1 end
  return token == "" and 2 or -1
end

-- Each task is written completely before the next one: an error ends the script but undoes nothing.
local outcomes = {}
for at = 7, #ARGV, width do
  local id, state, score, group = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local outcome = outcome_of(id, state, ARGV[at + 4], ARGV[at + 5])
  if state == "archived" and outcome > 0 then room = room - 1 end
  if (outcome == 1 or outcome == 2) and is_trial ~= "1" then
    local fields = {"state", state}
    for name = 6, width - 2, 2 do
      local value = name + 1
      if ARGV[at + name] ~= "" then
        fields[#fields + 1] = ARGV[at + name]
        fields[#fields + 1] = ARGV[at + value]
      end
    end
    -- Lua can pass only some thousand values to a call.
    for first = 1, #fields, 1000 do
      redis.call("HSET", task_prefix .. id, unpack(fields, first, math.min(first + 999, #fields)))
    end
    if state == "pending" then
      redis.call("LPUSH", pending, id)
    elseif state == "aggregating" then
      redis.call("ZADD", group_prefix .. group, score, id)
      redis.call("SADD", groups, group)
    else
      redis.call("ZADD", sets[state], score, id)
      local later = state == "scheduled" and redis.call("HGET", task_prefix .. id, "group")
      if later and later ~= "" then
        -- Lists the group, as schedule.lua does.
        redis.call("SADD", groups, later)
        redis.call("ZADD", scheduled_groups, "GT", score, later)
      end
    end
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
