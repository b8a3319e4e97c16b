--[[ examine_tasks: look for tasks that are in no list and no set, and put them where people find them.
KEYS[1] pending           asynq:{q}:pending
KEYS[2] active            asynq:{q}:active
KEYS[3] scheduled         asynq:{q}:scheduled
KEYS[4] retry             asynq:{q}:retry
KEYS[5] archived          asynq:{q}:archived
KEYS[6] completed         asynq:{q}:completed
KEYS[7] lease             asynq:{q}:lease
KEYS[8] aggregation_sets  asynq:{q}:aggregation_sets
ARGV[1] task_prefix       asynq:{q}:t:
ARGV[2] group_prefix      asynq:{q}:g:
ARGV[3] mend              1 archives them, keeps completed ones for a while, deletes those without message; 0 does not
ARGV[4] now               unix seconds
ARGV[5] keep_until        unix seconds
ARGV[6] max_length        the longest pending list in which is looked; of a longer one every task may be
ARGV[7...] ids            task ids
builds  task_prefix .. id, group_prefix .. group, same hash tag
returns list: id, what it is: its state, or none (without message), ...
asynq   none (such tasks stay for ever)
]]
local pending, active, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, lease, aggregation_sets = KEYS[6], KEYS[7], KEYS[8]
local task_prefix, group_prefix, mend, now, keep_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_length = tonumber(ARGV[6])
local sets = {scheduled = scheduled, retry = retry, archived = archived, completed = completed, active = lease}

local is_in_a_set
local function is_aggregating(id)
  if not is_in_a_set then
    is_in_a_set = {}
    for _, set in ipairs(redis.call("ZRANGE", aggregation_sets, 0, 999)) do is_in_a_set[set] = true end
  end
  for set in pairs(is_in_a_set) do
    if type(redis.pcall("ZSCORE", set, id)) == "string" then return true end
  end
  return false
end

-- First where its state says, then everywhere.
local function is_somewhere(id, state, group)
  if state == "pending" and redis.call("LLEN", pending) > max_length then return true end
  if sets[state] and redis.call("ZSCORE", sets[state], id) then return true end
  if group and type(redis.pcall("ZSCORE", group_prefix .. group, id)) == "string" then return true end
  for _, set in pairs(sets) do
    if redis.call("ZSCORE", set, id) then return true end
  end
  if redis.call("LPOS", active, id) then return true end
  if redis.call("LLEN", pending) > max_length or redis.call("LPOS", pending, id) then return true end
  return is_aggregating(id)
end

local reply = {}
for at = 7, #ARGV do
  local id = ARGV[at]
  local task = task_prefix .. id
  local found = redis.pcall("HMGET", task, "state", "group")
  if not found.err and redis.call("EXISTS", task) == 1 and not is_somewhere(id, found[1], found[2]) then
    local has_message, state = redis.call("HEXISTS", task, "msg") == 1, found[1] or ""
    reply[#reply + 1] = id
    reply[#reply + 1] = has_message and state or "none"
    if mend == "1" and not has_message then
      redis.call("UNLINK", task)
    elseif mend == "1" and state == "completed" then
      redis.call("ZADD", completed, keep_until, id)
    elseif mend == "1" then
      redis.call("ZADD", archived, now, id)
      redis.call("HSET", task, "state", "archived")
    end
  end
end
return reply
