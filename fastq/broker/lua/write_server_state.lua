--[[ write_server_state: publish what a server is and what it runs, for as long as it goes on saying so.
KEYS[1] server       asynq:servers:{host:pid:id}
KEYS[2] workers      asynq:workers:{host:pid:id}
ARGV[1] ttl          seconds
ARGV[2] server_info  ServerInfo message
ARGV[3...] workers   two values for each running task: task id, WorkerInfo message
builds  none
returns 1
asynq   writeServerStateCmd
]]
local server, workers = KEYS[1], KEYS[2]
local ttl, server_info = ARGV[1], ARGV[2]
redis.call("SETEX", server, ttl, server_info)
redis.call("UNLINK", workers)
for at = 3, #ARGV, 2 do redis.call("HSET", workers, ARGV[at], ARGV[at + 1]) end
redis.call("EXPIRE", workers, ttl)
return 1
