--[[ write_scheduler_entries: publish the entries of a scheduler, for as long as it repeats the call.
KEYS[1] entries      asynq:schedulers:{host:pid:id}
ARGV[1] ttl          seconds
ARGV[2...] messages  SchedulerEntry messages, the next one due first
builds  none
returns 1
asynq   writeSchedulerEntriesCmd (which fails for a TTL with a fraction of a second, after it has written)
]]
local entries = KEYS[1]
local ttl = ARGV[1]
redis.call("DEL", entries)
for at = 2, #ARGV, 500 do redis.call("LPUSH", entries, unpack(ARGV, at, math.min(at + 499, #ARGV))) end
redis.call("EXPIRE", entries, ttl)
return 1
