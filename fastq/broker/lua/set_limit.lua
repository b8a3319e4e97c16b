--[[ set_limit: change the rule of a lane, a pool, all lanes or the queue; lanes that wait for it are looked at again.
KEYS[1] groups        asynq:{q}:groups
KEYS[2] limits        asynq:{q}:limits
KEYS[3] turns         asynq:{q}:turns
KEYS[4] full          asynq:{q}:full
KEYS[5] bell          asynq:{q}:bell
KEYS[6] app_limits    asynq:{q}:app_limits
KEYS[7] group         asynq:{q}:g:{group}
KEYS[8] rates         asynq:{q}:rates
KEYS[9] pending       asynq:{q}:pending
KEYS[10] active       asynq:{q}:active
KEYS[11] scheduled    asynq:{q}:scheduled
KEYS[12] retry        asynq:{q}:retry
KEYS[13] archived     asynq:{q}:archived
ARGV[1] name          the field of the rule
ARGV[2] pool          the field of a lane's pool, or ""
ARGV[3] change        set | declare (by an app; a rule declared unchanged changes nothing) | remove | pause | resume
ARGV[4] rule          concurrency:interval_us:burst:weight, then perhaps :order, for set and declare, else ""
ARGV[5] due_channel   asynq:{q}:due, told of the change
builds  none
returns 1 | 0 it is paused already, was declared before, or there is nothing to remove or resume
asynq   none
]]
local groups, limits, turns, full, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local app_limits, group, rates = KEYS[6], KEYS[7], KEYS[8]
local pending, active, scheduled, retry, archived = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local name, pool, change, rule, due_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local no_rule, no_limit = "0:0:0:0", "0:0:1:1"

local was = redis.call("HGET", limits, name) or ""
local bare = string.match(was, "^(.*):paused$")
local is_paused, kept = bare ~= nil, bare or was
if kept == no_rule then kept = "" end
if change == "pause" and is_paused or change == "resume" and not is_paused or change == "remove" and kept == "" then
  return 0
end
if change == "declare" and redis.call("HGET", app_limits, name) == rule then return 0 end
if change == "pause" or change == "resume" then
  is_paused = change == "pause"
else
  kept = rule
end
-- These raise if a key has a wrong type, before anything is written.
local is_lane = name ~= "" and name ~= "*" and string.sub(name, -2) ~= ":*"
local has_turn, is_full = redis.call("ZSCORE", turns, name), redis.call("ZSCORE", full, name)
local has_bell, has_tasks = redis.call("LLEN", bell) > 0, redis.call("ZCARD", group) > 0
local has_lanes = redis.call("SCARD", groups) > 0
-- A group is a lane only while it has a rule. So if a lane has tasks, or may get some back, also from the archive, its
-- rule is not deleted but replaced by a rule that limits nothing.
local is_used = is_lane and has_tasks or not is_lane and has_lanes
  or redis.call("EXISTS", pending, active, scheduled, retry, archived) > 0
if kept == "" and not is_paused and name ~= "" and is_used then
  local others = redis.call("HMGET", limits, "*", pool)
  if name == "*" or not others[1] and (pool == "" or not others[2]) then kept = no_limit end
end

if change == "declare" then redis.call("HSET", app_limits, name, rule) end
if is_paused then
  redis.call("HSET", limits, name, (kept == "" and no_rule or kept) .. ":paused")
elseif kept ~= "" then
  redis.call("HSET", limits, name, kept)
else
  redis.call("HDEL", limits, name)
end
-- A lane that is full or waits for its time gets a turn; a lane that waits for its pool goes on waiting. The next call
-- of take looks at a pool again. A full queue no longer counts as full. A lane that was a group gets its turn by a
-- sweep.
if is_lane and (has_turn or is_full) then
  if is_full then redis.call("ZREM", full, name) end
  redis.call("ZADD", turns, 0, name)
elseif is_full and name == "" then
  redis.call("ZREM", full, name)
elseif is_full then
  redis.call("ZADD", full, 0, name)
end
if redis.call("EXISTS", limits) == 0 then
  redis.call("DEL", rates, turns, full, bell)
elseif (has_turn or is_full) and not has_bell then
  redis.call("LPUSH", bell, "1")
end
redis.pcall("PUBLISH", due_channel, "limits")
return 1
