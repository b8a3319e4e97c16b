--[[ release_lock: delete the unique lock of a task that needs it no longer, if it is still the task's.
KEYS[1] unique  asynq:{q}:unique:{type}:{md5}
ARGV[1] owner   task id
builds  none
returns 1 deleted | 0 gone, or another's
asynq   none
]]
local unique = KEYS[1]
local owner = ARGV[1]
if redis.pcall("GET", unique) ~= owner then return 0 end
return redis.call("DEL", unique)
