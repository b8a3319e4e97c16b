--[[ write_progress: store how far a running handler has come, while the caller has the lease.
KEYS[1] task      asynq:{q}:t:{id}
KEYS[2] lease     asynq:{q}:lease
ARGV[1] id        task id
ARGV[2] owner     the caller's mark, a fraction in the scores of its leases
ARGV[3] progress  JSON, "" to delete it
builds  none
returns 1 stored | -1 not the caller's
asynq   none
]]
local task, lease = KEYS[1], KEYS[2]
local id, owner, progress = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local score = redis.call("ZSCORE", lease, id)
if not (score and tonumber(score) % 1 == owner) then return -1 end
if progress == "" then redis.call("HDEL", task, "progress") else redis.call("HSET", task, "progress", progress) end
return 1
