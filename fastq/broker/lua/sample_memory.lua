--[[ sample_memory: estimate the bytes of a queue from a few tasks of each state and a few groups.
KEYS[1] pending        asynq:{q}:pending
KEYS[2] active         asynq:{q}:active
KEYS[3] scheduled      asynq:{q}:scheduled
KEYS[4] retry          asynq:{q}:retry
KEYS[5] archived       asynq:{q}:archived
KEYS[6] completed      asynq:{q}:completed
KEYS[7] groups         asynq:{q}:groups
ARGV[1] task_prefix    asynq:{q}:t:
ARGV[2] group_prefix   asynq:{q}:g:
ARGV[3] samples        tasks to look at in each state and group
ARGV[4] group_samples  groups to look at
builds  task_prefix .. id, group_prefix .. group, same hash tag
returns list: bytes of the queue without its groups, bytes of a task in a group, bytes of a group without its tasks
asynq   memoryUsageCmd
]]
local pending, active, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, groups = KEYS[6], KEYS[7]
local task_prefix, group_prefix, samples, group_samples = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local function used(key) return redis.call("MEMORY", "USAGE", key) or 0 end

local function used_by_each(ids)
  if #ids == 0 then return 0 end
  local bytes = 0
  for _, id in ipairs(ids) do bytes = bytes + used(task_prefix .. id) end
  return bytes / #ids
end

local bytes = used(groups)
for _, list in ipairs({pending, active}) do
  bytes = bytes + used(list) + used_by_each(redis.call("LRANGE", list, 0, samples - 1)) * redis.call("LLEN", list)
end
for _, set in ipairs({scheduled, retry, archived, completed}) do
  bytes = bytes + used(set) + used_by_each(redis.call("ZRANGE", set, 0, samples - 1)) * redis.call("ZCARD", set)
end

local grouped, group_bytes = {}, 0
local some = redis.call("SRANDMEMBER", groups, group_samples)
for _, group in ipairs(some) do
  group_bytes = group_bytes + used(group_prefix .. group)
  for _, id in ipairs(redis.call("ZRANGE", group_prefix .. group, 0, samples - 1)) do grouped[#grouped + 1] = id end
end
return {math.floor(bytes), math.floor(used_by_each(grouped)), math.floor(group_bytes / math.max(#some, 1))}
