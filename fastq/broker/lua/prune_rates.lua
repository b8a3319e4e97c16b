--[[ prune_rates: forget arrival times of lanes and pools that are in the past: they limit nothing any more.
KEYS[1] rates          asynq:{q}:rates
ARGV[1] cursor         HSCAN's: 0 at first, then the cursor returned, until that is 0
ARGV[2] count          fields to look at, about
builds  none
returns cursor
asynq   none
]]
local rates = KEYS[1]
local cursor, count = ARGV[1], ARGV[2]
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local found, past = redis.call("HSCAN", rates, cursor, "COUNT", count), {}
for at = 1, #found[2], 2 do
  if (tonumber(found[2][at + 1]) or 0) <= now then past[#past + 1] = found[2][at] end
end
if #past > 0 then redis.call("HDEL", rates, unpack(past)) end
return found[1]
