--[[ write_result: store the result of a running handler, while the caller has the lease.
KEYS[1] task    asynq:{q}:t:{id}
KEYS[2] lease   asynq:{q}:lease
ARGV[1] id      task id
ARGV[2] owner   the caller's mark, a fraction in the scores of its leases
ARGV[3] result  bytes
builds  none
returns 1 stored | -1 not the caller's
asynq   none (WriteResult is a plain HSET, which recreates the hash of a task that is gone)
]]
local task, lease = KEYS[1], KEYS[2]
local id, owner, result = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local score = redis.call("ZSCORE", lease, id)
if not (score and tonumber(score) % 1 == owner) then return -1 end
redis.call("HSET", task, "result", result)
return 1
