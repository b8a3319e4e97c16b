--[[ examine_leases: examine a stretch of the leases for those that ended long ago, or whose tasks are not active.
KEYS[1] lease           asynq:{q}:lease
KEYS[2] active          asynq:{q}:active
ARGV[1] cursor          ZSCAN's: 0 at first, then the one returned, until that is 0
ARGV[2] count           leases to look at, about
ARGV[3] expired_before  unix seconds
builds  none
returns list: cursor, leases looked at, then id, what it is: inactive, or expired
asynq   none
cost    active is read whole, if it has no more than 20 000 ids; else no lease is called inactive
]]
local lease, active = KEYS[1], KEYS[2]
local cursor, count, expired_before = ARGV[1], ARGV[2], tonumber(ARGV[3])
local found = redis.call("ZSCAN", lease, cursor, "COUNT", count)
local is_active
if redis.call("LLEN", active) <= 20000 then
  is_active = {}
  for _, id in ipairs(redis.call("LRANGE", active, 0, -1)) do is_active[id] = true end
end
local reply = {found[1], #found[2] / 2}
for at = 1, #found[2], 2 do
  local id, score = found[2][at], tonumber(found[2][at + 1])
  local what = is_active and not is_active[id] and "inactive" or score < expired_before and "expired"
  if what then
    reply[#reply + 1] = id
    reply[#reply + 1] = what
  end
end
return reply
