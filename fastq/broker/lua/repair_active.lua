--[[ repair_active: look through a stretch of active for tasks that nobody leases, and mend them.
KEYS[1] active       asynq:{q}:active
KEYS[2] lease        asynq:{q}:lease
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] start        index of the first id to look at, from the oldest (the tail): 0, 500, ...
ARGV[3] count        ids to look at
ARGV[4] now          unix seconds; a task without lease gets one that ends now, and is recovered after that
builds  task_prefix .. id, same hash tag
returns list: ids looked at, tasks that got a lease, ids dropped that had no task
asynq   none (such ids stay for ever)
]]
local active, lease = KEYS[1], KEYS[2]
local task_prefix, start, count, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local ids = redis.call("LRANGE", active, -(start + count), -(start + 1))
if #ids == 0 then return {0, 0, 0} end
local scores = redis.call("ZMSCORE", lease, unpack(ids))
local leased, dropped = 0, 0
for at, id in ipairs(ids) do
  if not scores[at] then
    if redis.call("EXISTS", task_prefix .. id) == 1 then
      redis.call("ZADD", lease, "NX", now, id)
      leased = leased + 1
    else
      redis.call("LREM", active, -1, id)
      dropped = dropped + 1
    end
  end
end
return {#ids, leased, dropped}
