--[[ list_leases: read the tasks whose leases end in a span of time, and drop leases that have no task.
KEYS[1] lease        asynq:{q}:lease
KEYS[2] active       asynq:{q}:active
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] from         lowest score, "-inf" for all that ended by "to"
ARGV[3] to           highest score, inclusive
ARGV[4] limit        tasks at most
builds  task_prefix .. id, same hash tag
returns list: ids dropped, then id, message, id, message, ...
asynq   listLeaseExpiredCmd (which leaves leases without task for ever)
]]
local lease, active = KEYS[1], KEYS[2]
local task_prefix, from, to, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local reply, ghosts = {0}, 0
for _, id in ipairs(redis.call("ZRANGE", lease, from, to, "BYSCORE", "LIMIT", 0, limit)) do
  local message = redis.call("HGET", task_prefix .. id, "msg")
  if message then
    reply[#reply + 1] = id
    reply[#reply + 1] = message
  else
    redis.call("ZREM", lease, id)
    redis.call("LREM", active, 0, id)
    ghosts = ghosts + 1
  end
end
reply[1] = ghosts
return reply
