--[[ add_worker_state: publish more of a server's running tasks, if one call would block Redis for too long.
KEYS[1] workers      asynq:workers:{host:pid:id}
ARGV[1] ttl          seconds
ARGV[2...] infos     two values for each running task: task id, WorkerInfo message
builds  none
returns 1
asynq   none (writes them all in one call)
]]
local workers, ttl = KEYS[1], ARGV[1]
for at = 2, #ARGV, 2 do redis.call("HSET", workers, ARGV[at], ARGV[at + 1]) end
redis.call("EXPIRE", workers, ttl)
return 1
