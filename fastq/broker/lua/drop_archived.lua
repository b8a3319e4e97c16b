--[[ drop_archived: delete some tasks that are archived, with their unique locks.
KEYS[1] archived     asynq:{q}:archived
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2...] ids       task ids
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns number of tasks that are archived then
asynq   none
]]
local archived = KEYS[1]
local task_prefix = ARGV[1]
for at = 2, #ARGV do
  local id = ARGV[at]
  if redis.call("ZREM", archived, id) == 1 then
    local task = task_prefix .. id
    local lock = redis.pcall("HMGET", task, "unique_key")[1]
    if lock and redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
    redis.call("DEL", task)
  end
end
return redis.call("ZCARD", archived)
