--[[ aggregation_check: if a group is due for aggregation, take its oldest tasks out of it, as a set with a deadline.
KEYS[1] group             asynq:{q}:g:{group}
KEYS[2] aggregation_set   asynq:{q}:g:{group}:{set}
KEYS[3] aggregation_sets  asynq:{q}:aggregation_sets
KEYS[4] groups            asynq:{q}:groups
ARGV[1] name              the group's
ARGV[2] now               unix seconds
ARGV[3] deadline          unix seconds after which any server's recoverer gives the set back to its group
ARGV[4] grace             seconds that a group waits for another task
ARGV[5] max_delay         seconds that its oldest task waits at most, 0 for no limit
ARGV[6] max_size          number of tasks at which it is due at once, 0 for no limit
ARGV[7] limit             tasks to take at most
builds  none
returns number of tasks in the set, 0 if the group is not due; a repeated call counts those taken before
asynq   aggregationCheckCmd
]]
local group, aggregation_set, aggregation_sets, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, now, deadline = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local grace, max_delay, max_size, limit = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

-- include: due_at

if redis.call("EXISTS", aggregation_set) == 1 then return redis.call("ZCARD", aggregation_set) end
local at, size = due_at(group)
if not at or at > now then return 0 end
redis.call("SCARD", groups) -- raises if the key has a wrong type
-- First, because a Redis that is out of memory refuses this write before anything else has happened.
redis.call("ZADD", aggregation_sets, deadline, aggregation_set)
if size <= limit then
  redis.call("RENAME", group, aggregation_set)
  redis.call("SREM", groups, name)
  return size
end
redis.call("ZRANGESTORE", aggregation_set, group, 0, limit - 1)
redis.call("ZREMRANGEBYRANK", group, 0, limit - 1)
return limit
