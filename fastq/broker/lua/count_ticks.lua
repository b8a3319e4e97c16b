--[[ count_ticks: add to the counters of schedulers' ticks; beyond `most` counters, further types are counted together.
KEYS[1] scheduler_ticks  asynq:scheduler_ticks
ARGV[1] ttl              seconds until they expire
ARGV[2] most             counters at most, without those of the type `other`
ARGV[3] other            the type under which all further types are counted
ARGV[4...] counts        three values each: outcome, type, count
builds  none
returns number of counters
asynq   none
]]
local scheduler_ticks = KEYS[1]
local ttl, most, other = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local known = redis.call("HLEN", scheduler_ticks)
for at = 4, #ARGV, 3 do
  local name = ARGV[at] .. ":" .. ARGV[at + 1]
  if not redis.call("HGET", scheduler_ticks, name) then
    if known >= most then name = ARGV[at] .. ":" .. other else known = known + 1 end
  end
  -- Another client may have stored a text that is no number; the error must not stop the script half-way.
  redis.pcall("HINCRBY", scheduler_ticks, name, ARGV[at + 2])
end
redis.call("EXPIRE", scheduler_ticks, ttl)
return redis.call("HLEN", scheduler_ticks)
