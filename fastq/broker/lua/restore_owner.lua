--[[ restore_owner: give the lease of a task its owner's mark again, which a late heartbeat of asynq has wiped off.
KEYS[1] lease        asynq:{q}:lease
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] id           the task's
ARGV[3] message      SHA-1 of its message as the caller has taken it, in hex
ARGV[4] lease_score  unix seconds at which the lease ends now, plus the caller's mark
builds  task_prefix .. id, same hash tag
returns 1 if the lease is the caller's | 0 if another server may have the task
asynq   none (its ExtendLease is ZADD XX, also for a task that it has ended a moment before)
]]
local lease, task_prefix, id = KEYS[1], ARGV[1], ARGV[2]
local message, lease_score = ARGV[3], ARGV[4]
local score = redis.call("ZSCORE", lease, id)
if not score then return 0 end
local mark = tonumber(score) % 1
-- The caller's own mark is there if the reply of a first call was lost.
if mark ~= 0 and mark ~= tonumber(lease_score) % 1 then return 0 end
local found = redis.call("HMGET", task_prefix .. id, "state", "msg")
-- A recoverer writes an error and its time into the message of a task that it takes from a server.
if found[1] ~= "active" or redis.sha1hex(found[2] or "") ~= message then return 0 end
redis.call("ZADD", lease, "XX", lease_score, id)
return 1
