--[[ enqueue_tick: put the task of a named scheduler entry into its starting state, once for each of the entry's ticks.
KEYS[1] tick         asynq:{q}:tick:{due}:{name}
KEYS[2] last_tick    asynq:{q}:last_tick:{name}
KEYS[3] task         asynq:{q}:t:{id}
KEYS[4] pending      asynq:{q}:pending
KEYS[5] scheduled    asynq:{q}:scheduled
KEYS[6] groups       asynq:{q}:groups
KEYS[7] group        asynq:{q}:g:{group}
KEYS[8] scheduled_groups  asynq:{q}:scheduled_groups
ARGV[1] by           the id of the entry that asks; each scheduler has its own
ARGV[2] due_s        the tick, unix seconds
ARGV[3] tick_ttl     seconds for which the tick is known to be done
ARGV[4] plan         the entry's zone and spec, or "" if later schedulers need not know the last tick
ARGV[5] last_ttl     seconds for which the last tick is known
ARGV[6] state        pending | scheduled | aggregating
ARGV[7] moment       unix nanoseconds of now | unix seconds to run at | unix seconds of now
ARGV[8] id           task id
ARGV[9] message      encoded
ARGV[10] group_name  or ""
ARGV[11] lock        key of the unique lock, or ""
ARGV[12] lock_ttl    seconds
ARGV[13] due_channel asynq:{q}:due, told the moment of a scheduled task if it is before all in scheduled
ARGV[14] rank_word   priority of the task in its lane, perhaps a colon and its deadline in unix seconds; 0 for none
builds  group_prefix .. group, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 put, also by an earlier sending of this call | 0 id exists | -1 lock held | -2 put by another scheduler
asynq   none: each of its schedulers enqueues each tick
]]
local tick, last_tick, task = KEYS[1], KEYS[2], KEYS[3]
local pending, scheduled, groups, group, scheduled_groups = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local by, due_s, tick_ttl, plan, last_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local state, moment, id, message, group_name = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local lock, lock_ttl, due_channel, rank_word = ARGV[11], ARGV[12], ARGV[13], ARGV[14]

local group_prefix = string.sub(group, 1, #group - #group_name)
-- include: due_times

-- include: sweep_groups

local done_by = redis.call("GET", tick)
if done_by then return done_by == by and 1 or -2 end

-- These raise if a key has a wrong type, before anything is written.
local last = string.match(redis.call("GET", last_tick) or "", "^%d+")
if group_name ~= "" then redis.call("SCARD", groups) end
if state == "pending" then
  redis.call("LLEN", pending)
elseif state == "scheduled" then
  redis.call("ZCARD", scheduled)
  redis.call("ZCARD", scheduled_groups)
else
  redis.call("ZCARD", group)
end

-- A later scheduler continues after this tick, even if the task was refused because of its id or its lock.
local function note_last_tick()
  if plan ~= "" and (not last or tonumber(last) < tonumber(due_s)) then
    redis.call("SET", last_tick, due_s .. ":" .. plan, "EX", last_ttl)
  end
end

local outcome = 1
if redis.call("EXISTS", task) == 1 then
  outcome = 0
elseif lock ~= "" and not redis.call("SET", lock, id, "NX", "EX", lock_ttl) then
  outcome = -1
end
if outcome ~= 1 then
  note_last_tick()
  return outcome
end
if state == "pending" then
  redis.call("LPUSH", pending, id)
  redis.call("HSET", task, "msg", message, "state", state, "pending_since", moment)
elseif state == "scheduled" then
  local known = earliest(scheduled)
  redis.call("ZADD", scheduled, moment, id)
  redis.call("HSET", task, "msg", message, "state", state)
  if tonumber(moment) < known then tell(moment) end
else
  redis.call("ZADD", group, moment, id)
  redis.call("HSET", task, "msg", message, "state", state)
end
if lock ~= "" then redis.call("HSET", task, "unique_key", lock) end
if rank_word ~= "0" then redis.call("HSET", task, "priority", rank_word) end
if group_name ~= "" then
  redis.call("HSET", task, "group", group_name)
  redis.call("SADD", groups, group_name)
  if state == "scheduled" then
    redis.call("ZADD", scheduled_groups, "GT", moment, group_name)
    sweep_groups()
  end
end
-- Last, so that a noted tick surely has its task.
redis.call("SET", tick, by, "EX", tick_ttl)
note_last_tick()
return 1
