--[[ examine_lock: check whether the task that holds a unique lock is gone, and delete the lock in that case.
KEYS[1] unique       asynq:{q}:unique:{type}:{md5}
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] repair       1 deletes a lock whose task is gone, 0 changes nothing
builds  task_prefix .. owner, same hash tag
returns the id of the task that is gone | nil: the task exists, or the lock is gone
asynq   none (such locks stay until they expire)
]]
local unique = KEYS[1]
local task_prefix, repair = ARGV[1], ARGV[2]
-- include: has_message

if repair == "1" then -- a check without repair needs no right to write
-- rights
end

local owner = redis.pcall("GET", unique)
if type(owner) ~= "string" or has_message(task_prefix .. owner) then return false end
if repair == "1" then redis.call("DEL", unique) end
return owner
