--[[ pause_queue: let nothing more be taken from a queue.
KEYS[1] paused  asynq:{q}:paused
ARGV[1] now     unix seconds
builds  none
returns 1 paused | 0 it was paused before
asynq   Pause (a SETNX, which a Redis that is out of memory refuses)
]]
local paused, now = KEYS[1], ARGV[1]
if redis.call("EXISTS", paused) == 1 then return 0 end
-- Out of memory, Redis refuses the first write of a script if it may need memory, and not those after it.
redis.call("DEL", paused)
redis.call("SET", paused, now)
return 1
