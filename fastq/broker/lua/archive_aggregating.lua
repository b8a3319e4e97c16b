--[[ archive_aggregating: move unreadable tasks of an aggregation set to archived, and keep archived within its bounds.
KEYS[1] aggregation_set  asynq:{q}:g:{group}:{set}
KEYS[2] archived         asynq:{q}:archived
KEYS[3] archive_rule     asynq:{q}:archive_rule
KEYS[4] paused           asynq:{q}:paused
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] now              unix seconds
ARGV[3] expire_before    unix seconds; tasks archived until then are deleted
ARGV[4] max_size         tasks that the archive keeps at most
ARGV[5...] tasks         two values each: id, message
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns number of tasks moved
asynq   none (one such task keeps its group from ever being aggregated)
]]
local aggregation_set, archived = KEYS[1], KEYS[2]
local archive_rule, paused = KEYS[3], KEYS[4]
local task_prefix, now, expire_before, max_size = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local moved = 0
-- Raises if the key has a wrong type, before a task is taken off the set and cannot be stored.
redis.call("ZCARD", archived)
for at = 5, #ARGV, 2 do
  local id, message = ARGV[at], ARGV[at + 1]
  if redis.call("ZREM", aggregation_set, id) == 1 then
    -- A key that is not a hash is not a task.
    if type(redis.pcall("HSET", task_prefix .. id, "msg", message, "state", "archived")) == "number" then
      redis.call("ZADD", archived, now, id)
      moved = moved + 1
    end
  end
end

-- include: trim_archive
return moved
