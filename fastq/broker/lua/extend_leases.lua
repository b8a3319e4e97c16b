--[[ extend_leases: extend the caller's leases; a lease that is gone or belongs to another server is left alone.
KEYS[1] lease        asynq:{q}:lease
ARGV[1] owner        the caller's mark, a fraction in the scores of its leases
ARGV[2] lease_score  unix seconds at which the leases end now, plus that mark
ARGV[3...] ids       task ids, 500 at most
builds  none
returns list of the ids that are not the caller's any more
asynq   none (ExtendLease is ZADD XX, which would prolong another server's lease)
cost    1.0 us a task at 500 tasks a call, 1.0 at 100 (benchmarks/bench_scripts.py)
]]
local lease = KEYS[1]
local owner, lease_score = tonumber(ARGV[1]), ARGV[2]
local scores = redis.call("ZMSCORE", lease, unpack(ARGV, 3))
local held, lost = {}, {}
for at, score in ipairs(scores) do
  local id = ARGV[2 + at]
  if score and tonumber(score) % 1 == owner then
    held[#held + 1] = lease_score
    held[#held + 1] = id
  else
    lost[#lost + 1] = id
  end
end
if #held > 0 then
  -- A Redis that is out of memory refuses a script whose first write may need memory, but allows later writes. This
  -- first write removes nothing, so leases continue while handlers run.
  redis.call("ZREM", lease, "")
  redis.call("ZADD", lease, "XX", unpack(held))
end
return lost
