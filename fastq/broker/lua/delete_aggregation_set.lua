--[[ delete_aggregation_set: delete tasks of an aggregated set, with their unique locks, and finally the set.
KEYS[1] aggregation_set   asynq:{q}:g:{group}:{set}
KEYS[2] aggregation_sets  asynq:{q}:aggregation_sets
ARGV[1] task_prefix       asynq:{q}:t:
ARGV[2...] tasks          two values each: id, key of its unique lock or ""
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns number of tasks that the set has left, -1 if it was not marked as aggregated
asynq   deleteAggregationSetCmd (all in one call, and no locks)
]]
local aggregation_set, aggregation_sets = KEYS[1], KEYS[2]
local task_prefix = ARGV[1]
if redis.call("ZSCORE", aggregation_sets, aggregation_set) ~= "inf" then return -1 end

redis.call("ZCARD", aggregation_set) -- raises if the key has a wrong type
local ids, tasks, locks, owners = {}, {}, {}, {}
for at = 2, #ARGV, 2 do
  local id, lock = ARGV[at], ARGV[at + 1]
  ids[#ids + 1] = id
  tasks[#tasks + 1] = task_prefix .. id
  if lock ~= "" then
    locks[#locks + 1] = lock
    owners[#owners + 1] = id
  end
end
if #ids > 0 then
  redis.call("DEL", unpack(tasks))
  redis.call("ZREM", aggregation_set, unpack(ids))
end
if #locks > 0 then
  local released = {}
  for n, holder in ipairs(redis.call("MGET", unpack(locks))) do
    if holder == owners[n] then released[#released + 1] = locks[n] end
  end
  if #released > 0 then redis.call("DEL", unpack(released)) end
end
local left = redis.call("ZCARD", aggregation_set)
if left == 0 then redis.call("ZREM", aggregation_sets, aggregation_set) end
return left
