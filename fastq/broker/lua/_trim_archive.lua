-- Uses archived, archive_rule, paused, task_prefix, now, max_size, expire_before.

-- At most 750 per call. A call adds at most 500, so an archive that others have overfilled still shrinks.
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
-- The rule that a server has set for this queue takes precedence over the caller's bounds, which are asynq's.
local rule = redis.pcall("HMGET", archive_rule, "max", "ttl", "full")
local most, full = tonumber(rule[1] or nil) or max_size, rule[3]
if tonumber(rule[2] or nil) then expire_before = now - rule[2] end
if full ~= "spill" then -- else a server's janitor writes the oldest to a file, and then deletes them
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
