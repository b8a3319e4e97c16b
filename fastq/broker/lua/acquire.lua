--[[ acquire: take a token of a semaphore if one is free; expired tokens are free.
KEYS[1] semaphore   asynq:sema:{scope}
ARGV[1] max_tokens  number of tokens
ARGV[2] now         unix seconds
ARGV[3] deadline    unix seconds at which the token expires, even if its holder dies
ARGV[4] holder      task id
builds  none
returns 1 taken | 0 none is free
asynq   acquireCmd (of x/rate)
]]
local semaphore = KEYS[1]
local max_tokens, now, deadline, holder = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
redis.call("ZREMRANGEBYSCORE", semaphore, "-inf", now - 1)
if redis.call("ZCARD", semaphore) >= max_tokens then return 0 end
redis.call("ZADD", semaphore, deadline, holder)
return 1
