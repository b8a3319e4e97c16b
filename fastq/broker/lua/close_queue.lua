--[[ close_queue: pause a queue for its deletion, unless it has tasks that prevent it.
KEYS[1] pending           asynq:{q}:pending
KEYS[2] active            asynq:{q}:active
KEYS[3] scheduled         asynq:{q}:scheduled
KEYS[4] retry             asynq:{q}:retry
KEYS[5] archived          asynq:{q}:archived
KEYS[6] completed         asynq:{q}:completed
KEYS[7] groups            asynq:{q}:groups
KEYS[8] aggregation_sets  asynq:{q}:aggregation_sets
KEYS[9] paused            asynq:{q}:paused
ARGV[1] now               unix seconds
ARGV[2] force             1 if only active tasks prevent it
builds  none
returns list: 1 paused or 0 not, then the size of each of the first eight keys
asynq   removeQueueCmd, removeQueueForceCmd (which delete some of the queue's keys)
]]
local pending, active, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, groups, aggregation_sets, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local now, force = ARGV[1], ARGV[2]
local reply, total = {1, redis.call("LLEN", pending), redis.call("LLEN", active)}, 0
for _, set in ipairs({scheduled, retry, archived, completed}) do reply[#reply + 1] = redis.call("ZCARD", set) end
reply[#reply + 1] = redis.call("SCARD", groups)
reply[#reply + 1] = redis.call("ZCARD", aggregation_sets)
for at = 2, #reply do total = total + reply[at] end
if reply[3] > 0 or total > 0 and force ~= "1" then
  reply[1] = 0
elseif redis.call("EXISTS", paused) == 0 then
  -- A Redis that is out of memory refuses a write that may need memory only if it is the script's first, so a harmless
  -- write comes first.
  redis.call("DEL", paused)
  redis.call("SET", paused, now)
end
return reply
