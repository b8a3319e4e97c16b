--[[ dequeue: take the oldest pending tasks, mark them active, lease them to the caller.
KEYS[1] pending        asynq:{q}:pending
KEYS[2] active         asynq:{q}:active
KEYS[3] lease          asynq:{q}:lease
KEYS[4] paused         asynq:{q}:paused
ARGV[1] task_prefix    asynq:{q}:t:
ARGV[2] count          tasks at most, 1 to 500
ARGV[3] max_bytes      bytes of messages at most; the first that goes beyond it is the last one taken
ARGV[4] lease_score    unix seconds at which the leases end, plus the owner's mark
builds  task_prefix .. id, same hash tag
returns -1 paused | 0 empty | list: number of ids without task (dropped), unix nanoseconds since when the first and the
  last id were pending ("" if not known), then id, message, id, message, ...
asynq   dequeueCmd (one task a call; an id without task stays in active and lease forever)
cost    2.7 us a task at 500 tasks a call, 2.9 at 100 (benchmarks/bench_scripts.py)
]]
local pending, active, lease, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local task_prefix, count, max_bytes, lease_score = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local MOST_IN_LISTPACK, WORTH_A_SKIP_LIST, TOO_LONG = 128, 16, string.rep("\255", 65)

if redis.call("EXISTS", paused) == 1 then return -1 end
-- These raise if a key has a wrong type, before ids are taken off pending and cannot be stored.
redis.call("LLEN", active)
local leased = redis.call("ZCARD", lease)
-- The pop comes first. It frees memory, so a Redis that is out of memory lets the later writes pass.
local ids = redis.call("RPOP", pending, count)
if not ids then return 0 end

-- Read for the first and the last id only: for all ids, it would take a tenth of the call's time.
local function pending_since(id)
  local since = redis.pcall("HGET", task_prefix .. id, "pending_since")
  return type(since) == "string" and since or ""
end
local first_since = pending_since(ids[1])
local last_since = #ids > 1 and pending_since(ids[#ids]) or first_since

local reply, taken, leases, bytes, dangling = {0, first_since, last_since}, {}, {}, 0, 0
local last = #ids
for at, id in ipairs(ids) do
  local task = task_prefix .. id
  -- A key that is not a hash must not raise here: the whole batch is off pending already, and would be lost.
  local message = redis.pcall("HGET", task, "msg")
  if type(message) == "string" then
    redis.call("HSET", task, "state", "active")
    redis.call("HDEL", task, "pending_since")
    taken[#taken + 1] = id
    leases[#leases + 1] = lease_score
    leases[#leases + 1] = id
    reply[#reply + 1] = id
    reply[#reply + 1] = message
    bytes = bytes + #message
    if bytes >= max_bytes then
      last = at
      break
    end
  else
    dangling = dangling + 1
  end
end

if last < #ids then
  local back = {}
  for at = #ids, last + 1, -1 do back[#back + 1] = ids[at] end
  redis.call("RPUSH", pending, unpack(back))
end
if #taken > 0 then
  redis.call("LPUSH", active, unpack(taken))
  -- Redis keeps up to 128 leases as a listpack, and parses the preceding scores as text for each lease added or
  -- removed: up to half the cost of a batch of 100. A member too long for a listpack makes it a skip list, until the
  -- last lease is gone. The member is not UTF-8, so it is no task's id.
  local is_listpack = leased <= MOST_IN_LISTPACK and leased + #taken >= WORTH_A_SKIP_LIST
  if is_listpack then redis.call("ZADD", lease, lease_score, TOO_LONG) end
  redis.call("ZADD", lease, unpack(leases))
  if is_listpack then redis.call("ZREM", lease, TOO_LONG) end
end
reply[1] = dangling
return reply
