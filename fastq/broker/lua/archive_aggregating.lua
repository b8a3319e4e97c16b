--[[ archive_aggregating: move tasks of a set that cannot be read to archived, and keep that set within its bounds.
KEYS[1] aggregation_set  asynq:{q}:g:{group}:{set}
KEYS[2] archived         asynq:{q}:archived
KEYS[3] archive_rule     asynq:{q}:archive_rule
KEYS[4] paused           asynq:{q}:paused
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] now              unix seconds
ARGV[3] expire_before    unix seconds; what was archived until then is deleted
ARGV[4] max_size         tasks that the archive holds at most
ARGV[5...] tasks         two values each: id, message
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns number of tasks moved
asynq   none (one such task keeps its group from being aggregated for ever)
]]
local aggregation_set, archived = KEYS[1], KEYS[2]
local archive_rule, paused = KEYS[3], KEYS[4]
local task_prefix, now, expire_before, max_size = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local moved = 0
for at = 5, #ARGV, 2 do
  local id, message = ARGV[at], ARGV[at + 1]
  if redis.call("ZREM", aggregation_set, id) == 1 then
    redis.call("ZADD", archived, now, id)
    redis.call("HSET", task_prefix .. id, "msg", message, "state", "archived")
    moved = moved + 1
  end
end

-- begin: trim archive
-- 750 a call at most: what others overfilled by far still gets smaller, since a call adds no more than 500.
local function drop(ids)
  if #ids == 0 then return end
  local doomed = {}
  for _, id in ipairs(ids) do
    local hash = task_prefix .. id
    local lock = redis.pcall("HMGET", hash, "unique_key")[1]
    if lock and redis.pcall("GET", lock) == id then doomed[#doomed + 1] = lock end
    doomed[#doomed + 1] = hash
  end
  redis.call("ZREM", archived, unpack(ids))
  redis.call("DEL", unpack(doomed))
end
-- What a server has set for this queue comes before the caller's bounds, which are asynq's.
local rule = redis.pcall("HMGET", archive_rule, "max", "ttl", "full")
local most, full = tonumber(rule[1] or nil) or max_size, rule[3]
if tonumber(rule[2] or nil) then expire_before = now - rule[2] end
if full ~= "spill" then -- a server's janitor writes the oldest to a file, and deletes them then
  local doomed = redis.call("ZRANGE", archived, "-inf", expire_before, "BYSCORE", "LIMIT", 0, 500)
  drop(doomed)
  local dropped, excess = #doomed, redis.call("ZCARD", archived) - most
  if full == "pause" then
    if excess >= 0 and redis.call("EXISTS", paused) == 0 then redis.call("SET", paused, now) end
  elseif excess > 0 then
    doomed = redis.call("ZRANGE", archived, 0, math.min(excess, 750 - dropped) - 1)
    drop(doomed)
    dropped = dropped + #doomed
  end
  if dropped > 0 then redis.pcall("HINCRBY", archive_rule, "dropped", dropped) end
end
-- end: trim archive
return moved
