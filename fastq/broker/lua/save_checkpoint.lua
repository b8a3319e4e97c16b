--[[ save_checkpoint: replace the message of a running task by one with its checkpoint, while the caller has the lease.
KEYS[1] task     asynq:{q}:t:{id}
KEYS[2] lease    asynq:{q}:lease
ARGV[1] id           task id
ARGV[2] owner        the caller's mark, a fraction in the scores of its leases
ARGV[3] message      the message with the checkpoint among its headers
ARGV[4] lease_score  unix seconds at which the lease ends now, plus that mark
builds  none
returns 1 saved | -1 not the caller's
asynq   none
]]
local task, lease = KEYS[1], KEYS[2]
local id, owner, message, lease_score = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local score = redis.call("ZSCORE", lease, id)
if not (score and tonumber(score) % 1 == owner) then return -1 end
redis.call("HSET", task, "msg", message)
-- If the lease had ended, a recoverer may have read the old message. The longer lease keeps the recoverer from writing
-- it back.
redis.call("ZADD", lease, "XX", "GT", lease_score, id)
-- The task makes progress: max_lost is for tasks that never do.
redis.call("HDEL", task, "lost")
return 1
