--[[ update_payload: replace the message of a scheduled task, unless it changed since it was read.
KEYS[1] task     asynq:{q}:t:{id}
ARGV[1] old      message as it was read
ARGV[2] new      message to be stored
builds  none
returns 1 replaced | 0 there is no such task | -1 it changed | the name of its state, if that is not scheduled
asynq   updateTaskPayloadCmd
]]
local task = KEYS[1]
local old, new = ARGV[1], ARGV[2]
local found = redis.call("HMGET", task, "msg", "state")
if not found[1] then return 0 end
if found[2] ~= "scheduled" then return found[2] or "" end
if found[1] ~= old then return -1 end
redis.call("HSET", task, "msg", new)
return 1
