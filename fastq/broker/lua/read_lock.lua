--[[ read_lock: read how long a task still holds its unique lock.
KEYS[1] unique  asynq:{q}:unique:{type}:{md5}
ARGV[1] owner   task id
builds  none
returns milliseconds | -1 forever | -2 it does not hold it
asynq   none
]]
local unique = KEYS[1]
local owner = ARGV[1]
-- A message may name any key as its lock; GET raises if the key is not a string.
if redis.pcall("GET", unique) ~= owner then return -2 end
return redis.call("PTTL", unique)
