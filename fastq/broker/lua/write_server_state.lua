--[[ write_server_state: publish a server and its running tasks, for as long as it repeats the call.
KEYS[1] server       asynq:servers:{host:pid:id}
KEYS[2] workers      asynq:workers:{host:pid:id}
KEYS[3] notice       asynq:fastq:{host:pid:id}
ARGV[1] ttl          seconds
ARGV[2] server_info  ServerInfo message
ARGV[3] notice_text  data beyond ServerInfo, JSON
ARGV[4...] workers   two values for each running task: task id, WorkerInfo message
builds  none
returns 1
asynq   writeServerStateCmd (has no notice)
]]
local server, workers, notice = KEYS[1], KEYS[2], KEYS[3]
local ttl, server_info, notice_text = ARGV[1], ARGV[2], ARGV[3]
redis.call("SETEX", server, ttl, server_info)
redis.call("SETEX", notice, ttl, notice_text)
redis.call("UNLINK", workers)
for at = 4, #ARGV, 2 do redis.call("HSET", workers, ARGV[at], ARGV[at + 1]) end
redis.call("EXPIRE", workers, ttl)
return 1
