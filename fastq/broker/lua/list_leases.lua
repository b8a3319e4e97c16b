--[[ list_leases: read the tasks whose leases end in a range of time, and drop leases without task.
KEYS[1] lease        asynq:{q}:lease
KEYS[2] active       asynq:{q}:active
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] from         lowest score, "-inf" for all that ended by "to"
ARGV[3] to           highest score, inclusive
ARGV[4] limit        tasks at most; 0 only checks that leases can be written
ARGV[5] max_bytes    bytes of messages at most; the first that goes beyond it is the last one read
builds  task_prefix .. id, same hash tag
returns list: ids dropped, then three values for each task: id, message, how often it was lost ("" for never)
        If active is long, not all dropped ids are taken off it: repair_active finds the rest.
asynq   listLeaseExpiredCmd (which leaves leases without task forever)
]]
local lease, active = KEYS[1], KEYS[2]
local task_prefix, from, to, limit, max_bytes = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local reply, dangling, bytes = {0}, 0, 0
-- An LREM scans all of active: 100000 elements take about 1 ms in all.
local removals = math.floor(100000 / math.max(1, redis.call("LLEN", active)))
-- Removes nothing, but fails if Redis takes no writes (a replica, a full disk). Then no server can extend a lease, so
-- expired leases would prove nothing.
redis.call("ZREM", lease, "")
for _, id in ipairs(redis.call("ZRANGE", lease, from, to, "BYSCORE", "LIMIT", 0, limit)) do
  -- A key that is not a hash is no task: its error must not keep the tasks behind it from being read. Any other
  -- error proves nothing about the task: in a cluster it may be moving to another node.
  local found = redis.pcall("HMGET", task_prefix .. id, "msg", "lost")
  if found.err and not string.find(found.err, "WRONGTYPE", 1, true) then return found end
  local message = found[1]
  if message then
    reply[#reply + 1] = id
    reply[#reply + 1] = message
    reply[#reply + 1] = found[2] or ""
    bytes = bytes + #message
    if bytes >= max_bytes then break end
  else
    redis.call("ZREM", lease, id)
    if dangling < removals then redis.call("LREM", active, 0, id) end
    dangling = dangling + 1
  end
end
reply[1] = dangling
return reply
