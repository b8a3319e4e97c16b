--[[ read_lock: tell for how long a task holds its unique lock.
KEYS[1] unique  asynq:{q}:unique:{type}:{md5}
ARGV[1] owner   task id
builds  none
returns milliseconds | -1 for ever | -2 it does not hold it
asynq   none
]]
local unique = KEYS[1]
local owner = ARGV[1]
-- What a message calls a lock may be any key: one that is no string is an error to GET.
if redis.pcall("GET", unique) ~= owner then return -2 end
return redis.call("PTTL", unique)
