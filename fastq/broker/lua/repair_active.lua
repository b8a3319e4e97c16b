--[[ repair_active: scan a stretch of active for tasks without a lease, and repair them.
KEYS[1] active       asynq:{q}:active
KEYS[2] lease        asynq:{q}:lease
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] start        index of the first id to look at, from the oldest (the tail): 0, 500, ...
ARGV[3] count        ids to look at
ARGV[4] now          unix seconds; a task without lease gets one that ends now, and is recovered after that
builds  task_prefix .. id, same hash tag
returns list: ids looked at, tasks that got a lease, ids dropped that had no task
asynq   none (such ids stay forever)
]]
local active, lease = KEYS[1], KEYS[2]
local task_prefix, start, count, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local ids = redis.call("LRANGE", active, -(start + count), -(start + 1))
if #ids == 0 then return {0, 0, 0} end
local scores = redis.call("ZMSCORE", lease, unpack(ids))
local leased, dropped, marks = 0, 0, 0
-- An LREM for each id would pass all older ids each time. LSET goes to the position directly, and one LREM removes all
-- marks. If LSET is refused, for lack of memory or by ACL rules, LREM removes the id.
local mark = "\255 is taken off active by this call \255"
for at, id in ipairs(ids) do
  if not scores[at] then
    -- An id without a message is no task, and gets no lease: list_leases would drop that lease, and this script would
    -- give it again, forever.
    local message = redis.pcall("HGET", task_prefix .. id, "msg")
    if type(message) == "table" and not string.find(message.err, "WRONGTYPE", 1, true) then return message end
    if message and type(message) == "string" then
      redis.call("ZADD", lease, "NX", now, id)
      leased = leased + 1
    else
      -- First an LREM that removes nothing: if it is refused, the script ends before there is a mark.
      if marks == 0 then redis.call("LREM", active, 1, mark) end
      if redis.pcall("LSET", active, at - 1 - start - #ids, mark).err then
        redis.call("LREM", active, -1, id)
      else
        marks = marks + 1
      end
      dropped = dropped + 1
    end
  end
end
if marks > 0 then redis.call("LREM", active, -marks, mark) end
return {#ids, leased, dropped}
