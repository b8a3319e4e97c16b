--[[ read_lanes: read some of a queue's lanes and pools: their tasks, places and rules, and what they wait for.
KEYS[1] limits        asynq:{q}:limits
KEYS[2] turns         asynq:{q}:turns
KEYS[3] full          asynq:{q}:full
KEYS[4] rates         asynq:{q}:rates
KEYS[5] lease         asynq:{q}:lease
KEYS[6] paused        asynq:{q}:paused
ARGV[1] group_prefix  asynq:{q}:g:
ARGV[2] held_prefix   asynq:{q}:h:
ARGV[3] pool_prefix   asynq:{q}:pool:
ARGV[4] most          holders of places to name, for each lane
ARGV[5...] lanes      two values each: a lane or "pool:*", the pool of a lane or ""
builds  group_prefix .. lane, held_prefix .. lane, pool_prefix .. pool, same hash tag
returns list: unix us now; 1 if the queue is paused; tasks that it runs; then for each lane a list: tasks that wait,
  places taken, its turn, the next look at it if it is full, its rule, the arrival time of its rate, since when it waits
  for its pool ("" for what is missing), then id and lease score of holders, if at most 20 places are taken
asynq   none
cost    4 us a lane
]]
local limits, turns, full, rates, lease, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group_prefix, held_prefix, pool_prefix, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local few = 20

local time = redis.call("TIME")
local now = string.format("%.0f", time[1] * 1000000 + time[2])
local reply = {now, redis.call("EXISTS", paused), redis.call("ZCARD", lease)}
for at = 5, #ARGV, 2 do
  local lane, pool = ARGV[at], ARGV[at + 1]
  local held = held_prefix .. lane
  local taken = redis.call("SCARD", held)
  local row = {
    redis.call("ZCARD", group_prefix .. lane),
    taken,
    redis.call("ZSCORE", turns, lane) or "",
    redis.call("ZSCORE", full, lane) or "",
    redis.call("HGET", limits, lane) or "",
    redis.call("HGET", rates, lane) or "",
    pool ~= "" and redis.call("ZSCORE", pool_prefix .. pool, lane) or "",
  }
  local ids = taken > 0 and taken <= few and redis.call("SMEMBERS", held) or {}
  table.sort(ids)
  for nth = 1, math.min(#ids, most) do
    row[#row + 1] = ids[nth]
    row[#row + 1] = redis.call("ZSCORE", lease, ids[nth]) or ""
  end
  reply[#reply + 1] = row
end
return reply
