--[[ recheck_lanes: give a turn now to some of the lanes that are full, paused, or wait for their time.
KEYS[1] turns         asynq:{q}:turns
KEYS[2] full          asynq:{q}:full
KEYS[3] bell          asynq:{q}:bell
ARGV[1] count         lanes at most
builds  none
returns lanes that were given a turn, and pools that are looked at again; less than count means that none are left
asynq   none
]]
local turns, full, bell = KEYS[1], KEYS[2], KEYS[3]
local count = tonumber(ARGV[1])
local time = redis.call("TIME")
local now = string.format("%.0f", time[1] * 1000000 + time[2])
-- LLEN raises if the bell has a wrong type, before anything is written.
local has_bell, due, lanes, pools = redis.call("LLEN", bell) > 0, {}, {}, 0
redis.call("ZCARD", turns)
for _, name in ipairs(redis.call("ZRANGE", full, "(" .. now, "+inf", "BYSCORE", "LIMIT", 0, count)) do
  -- Pools and the queue itself take no turns: the next call of take looks at them.
  if name ~= "" and string.sub(name, -2) ~= ":*" then
    lanes[#lanes + 1] = name
  else
    redis.call("ZADD", full, 0, name)
    pools = pools + 1
  end
end
for _, name in ipairs(redis.call("ZRANGE", turns, "(" .. now, "+inf", "BYSCORE", "LIMIT", 0, count - pools - #lanes)) do
  lanes[#lanes + 1] = name
end
if #lanes == 0 then return pools end
for _, name in ipairs(lanes) do
  due[#due + 1] = 0
  due[#due + 1] = name
end
redis.call("ZREM", full, unpack(lanes))
redis.call("ZADD", turns, unpack(due))
if not has_bell then redis.call("LPUSH", bell, "1") end
return #lanes + pools
