--[[ list_owned: list the tasks that a server has leased, the one taken first at the front; changes nothing.
KEYS[1] lease        asynq:{q}:lease
KEYS[2] active       asynq:{q}:active
ARGV[1] owner        the server's mark, a fraction in the scores of its leases
ARGV[2] from         unix seconds: only leases that end later
ARGV[3] to           unix seconds: only leases that end by then
ARGV[4] most         tasks at most
builds  none
returns list of ids
asynq   none
]]
local lease, active = KEYS[1], KEYS[2]
local owner, from, to, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local owned, count = {}, 0
-- A server's leases that end in the same second have one score, so the leases of other servers need not be read.
for second = from, to - 1 do
  local score = string.format("%.17g", second + owner)
  for _, id in ipairs(redis.call("ZRANGE", lease, score, score, "BYSCORE", "LIMIT", 0, most - count)) do
    owned[id] = true
    count = count + 1
  end
  if count >= most then break end
end
local ids = {}
if count == 0 then return ids end
local oldest = redis.call("LRANGE", active, -10 * most, -1)
for at = #oldest, 1, -1 do
  if owned[oldest[at]] then
    ids[#ids + 1] = oldest[at]
    owned[oldest[at]] = nil
  end
end
for id in pairs(owned) do ids[#ids + 1] = id end
return ids
