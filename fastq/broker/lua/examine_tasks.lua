--[[ examine_tasks: find tasks that are in no list and no set, and put them where inspectors list them.
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
ARGV[3] repair            1 archives them, keeps completed ones a while, deletes those without message; 0 changes none
ARGV[4] now               unix seconds
ARGV[5] keep_until        unix seconds
ARGV[6] max_length        the longest pending list that is searched
ARGV[7] read_ns           unix nanoseconds when a longer one began to be read, without finding the ids; 0 if it was not
ARGV[8] max_archived      size of archived from which no more are put there: a full archive deletes its oldest
ARGV[9...] ids            task ids
builds  task_prefix .. id, group_prefix .. group, same hash tag
returns list: id, what it is: its state, none (without message), unsure (it may be in pending), or
  full (it was not repaired, since the archive is full)
asynq   none (such tasks stay forever)
]]
local pending, active, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, lease, aggregation_sets = KEYS[6], KEYS[7], KEYS[8]
local task_prefix, group_prefix, repair, now, keep_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_length, read_ns, max_archived = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local sets = {scheduled = scheduled, retry = retry, archived = archived, completed = completed, active = lease}

-- A key that is not a sorted set has no ids. Any other error proves nothing, so it ends the script: in a cluster the
-- set may be moving to another node.
local function is_in(set, id)
  local score = redis.pcall("ZSCORE", set, id)
  if type(score) == "table" and not string.find(score.err, "WRONGTYPE", 1, true) then redis.call("ZSCORE", set, id) end
  return type(score) == "string"
end

local aggregating
local function is_aggregating(id)
  aggregating = aggregating or redis.call("ZRANGE", aggregation_sets, 0, 1000)
  if #aggregating > 1000 then return true end
  for _, set in ipairs(aggregating) do
    if is_in(set, id) then return true end
  end
  return false
end

-- A long list is searched only at its ends, where ids enter. The caller has read it before, without finding the ids. An
-- id that became pending after that counts as found.
local function is_pending(id)
  if redis.call("LLEN", pending) <= max_length then return redis.call("LPOS", pending, id) ~= false end
  if read_ns == 0 then return nil end
  if tonumber(redis.call("HGET", task_prefix .. id, "pending_since") or 0) >= read_ns then return true end
  return redis.call("LPOS", pending, id, "MAXLEN", 10000) ~= false
    or redis.call("LPOS", pending, id, "RANK", -1, "MAXLEN", 10000) ~= false
end

-- Returns whether a task is in a list or set, looking first where its state says; nil if that is unknown.
local function is_somewhere(id, state, group)
  if state == "moving" then return true end -- between two queues: the move must end that state
  if sets[state] and redis.call("ZSCORE", sets[state], id) then return true end
  if group and is_in(group_prefix .. group, id) then return true end
  for _, set in pairs(sets) do
    if redis.call("ZSCORE", set, id) then return true end
  end
  if redis.call("LPOS", active, id) or is_aggregating(id) then return true end
  return is_pending(id)
end

if repair == "1" then -- a check without repair needs no right to write
-- rights
end

local reply = {}
for at = 9, #ARGV do
  local id = ARGV[at]
  local task = task_prefix .. id
  local found = redis.pcall("HMGET", task, "state", "group")
  local is_placed = found.err or redis.call("EXISTS", task) == 0 or is_somewhere(id, found[1], found[2])
  if is_placed == nil then
    reply[#reply + 1] = id
    reply[#reply + 1] = "unsure"
  elseif not is_placed then
    local has_message, state = redis.call("HEXISTS", task, "msg") == 1, found[1] or ""
    reply[#reply + 1] = id
    reply[#reply + 1] = has_message and state or "none"
    if repair == "1" and not has_message then
      redis.call("UNLINK", task)
    elseif repair == "1" and state == "completed" then
      redis.call("ZADD", completed, keep_until, id)
    elseif repair == "1" and redis.call("ZCARD", archived) >= max_archived then
      reply[#reply] = "full"
    elseif repair == "1" then
      redis.call("ZADD", archived, now, id)
      redis.call("HSET", task, "state", "archived")
    end
  end
end
return reply
