--[[ unpark_tasks: put tasks that a move parked back into their former states.
KEYS[1] moving        asynq:{q}:moving
KEYS[2] pending       asynq:{q}:pending
KEYS[3] scheduled     asynq:{q}:scheduled
KEYS[4] retry         asynq:{q}:retry
KEYS[5] archived      asynq:{q}:archived
KEYS[6] completed     asynq:{q}:completed
KEYS[7] groups        asynq:{q}:groups
KEYS[8] scheduled_groups  asynq:{q}:scheduled_groups
ARGV[1] task_prefix   asynq:{q}:t:
ARGV[2] group_prefix  asynq:{q}:g:
ARGV[3] token         the move's
ARGV[4] is_back       1 to put pending ones before all others, where they were; "" behind them
ARGV[5...] tasks      two values each: id, the move that parked it here ("" in its old queue); the oldest first
builds  task_prefix .. id, group_prefix .. group, same hash tag
returns number of tasks that were parked
asynq   none
]]
local moving, pending, scheduled, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local archived, completed, groups, scheduled_groups = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local task_prefix, group_prefix, token, is_back = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local sets = {scheduled = scheduled, retry = retry, archived = archived, completed = completed}
-- These raise if a key has a wrong type, before anything is written.
redis.call("ZCARD", moving)
redis.call("LLEN", pending)
redis.call("SCARD", groups)
redis.call("ZCARD", scheduled_groups)
for _, set in pairs(sets) do redis.call("ZCARD", set) end
for at = 5, #ARGV, 2 do
  local found = redis.pcall("HMGET", task_prefix .. ARGV[at], "move_state", "move_group")
  -- A key that is not a hash is not a task. Any other error may not be the task's fault: in a cluster the task may be
  -- moving to another node. It is still parked, and its note must stay.
  if found.err and not string.find(found.err, "WRONGTYPE", 1, true) then return found end
  if found[1] == "aggregating" then redis.call("ZCARD", group_prefix .. found[2]) end
end

local ids, count = {}, 0
for at = 5, #ARGV, 2 do
  local id, copy = ARGV[at], ARGV[at + 1]
  local task = task_prefix .. id
  local found = redis.pcall(
    "HMGET", task, "state", "move_token", "move_state", "move_score", "move_group", "move_copy", "group"
  )
  if found[1] == "moving" and found[2] == token and (found[6] or "") == copy then
    local state, score, group = found[3], found[4], found[5]
    redis.call("HSET", task, "state", state)
    redis.call(
      "HDEL", task, "move_state", "move_score", "move_group", "move_to", "move_from", "move_token",
      "move_copy"
    )
    redis.call("ZREM", moving, id)
    if state == "pending" then
      ids[#ids + 1] = id
    elseif state == "aggregating" then
      redis.call("ZADD", group_prefix .. group, score, id)
      redis.call("SADD", groups, group)
    else
      redis.call("ZADD", sets[state], score, id)
      local later = state == "scheduled" and found[7]
      if later and later ~= "" then
        -- Lists the group, as schedule.lua does.
        redis.call("SADD", groups, later)
        redis.call("ZADD", scheduled_groups, "GT", score, later)
      end
    end
    count = count + 1
  end
end
if #ids > 0 and is_back == "1" then
  for at = #ids, 1, -1 do redis.call("RPUSH", pending, ids[at]) end
elseif #ids > 0 then
  redis.call("LPUSH", pending, unpack(ids))
end
return count
