--[[ keep_traceback: keep the traceback of an error under its fingerprint, and drop the oldest beyond a number of them.
KEYS[1] errors        asynq:{q}:errors
ARGV[1] error_prefix  asynq:{q}:error:
ARGV[2] now           unix seconds
ARGV[3] ttl           seconds for which it is kept
ARGV[4] max_size      tracebacks that the queue keeps at most
ARGV[5] fingerprint   the error's
ARGV[6] traceback     text
builds  error_prefix .. fingerprint, same hash tag
returns number of tracebacks dropped
asynq   none
]]
local errors = KEYS[1]
local error_prefix, now, ttl, max_size = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local fingerprint, traceback = ARGV[5], ARGV[6]
redis.call("ZADD", errors, now, fingerprint)
redis.call("EXPIRE", errors, ttl)
redis.call("SET", error_prefix .. fingerprint, traceback, "EX", ttl)
redis.call("ZREMRANGEBYSCORE", errors, "-inf", now - ttl)
local over = redis.call("ZCARD", errors) - max_size
if over <= 0 then return 0 end
local oldest = redis.call("ZPOPMIN", errors, over)
for at = 1, #oldest, 2 do redis.call("UNLINK", error_prefix .. oldest[at]) end
return over
