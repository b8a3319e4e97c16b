--[[ drop_archived: delete some tasks that have stayed archived since they were read, with their unique locks.
KEYS[1] archived     asynq:{q}:archived
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2...] tasks     two values each: id, score with which it was read
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns number of tasks left in archived
asynq   none
]]
local archived = KEYS[1]
local task_prefix = ARGV[1]
for at = 2, #ARGV, 2 do
  local id = ARGV[at]
  -- A task with another score was run and has failed again.
  if redis.call("ZSCORE", archived, id) == ARGV[at + 1] then
    redis.call("ZREM", archived, id)
    local task = task_prefix .. id
    local lock = redis.pcall("HMGET", task, "unique_key")[1]
    if lock and redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
    redis.call("DEL", task)
  end
end
return redis.call("ZCARD", archived)
