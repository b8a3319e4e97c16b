--[[ sign: note that a server is alive, and tell which others have given no sign for a while.
KEYS[1] signs          asynq:fastq:{asynq:servers}:signs
KEYS[2] signers        asynq:fastq:{asynq:servers}:signers
KEYS[3] all_servers    asynq:servers
ARGV[1] mark           the caller's mark, a fraction in the scores of its leases
ARGV[2] facts          data about the caller, JSON
ARGV[3] silent_ms      milliseconds without a sign
ARGV[4] most           silent servers to return at most
ARGV[5] forget_ms      milliseconds without a sign after which a server is forgotten
ARGV[6] now            unix seconds by the caller's clock
builds  none
returns list: number of servers with current data (Go's included), then three values for each silent one, the
  longest silent first: mark, milliseconds of silence, facts
asynq   none
]]
local signs, signers, all_servers = KEYS[1], KEYS[2], KEYS[3]
local mark, facts, silent_ms, most, forget_ms, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local KEEP_S = 3600
-- The clocks of servers differ, so Redis' clock is used for all.
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- These raise if a key has a wrong type, before anything is written.
local reply = {redis.call("ZCOUNT", all_servers, now, "+inf")}
redis.call("ZCARD", signs)
redis.call("HSET", signers, mark, facts)
redis.call("ZADD", signs, now_ms, mark)
redis.call("EXPIRE", signs, KEEP_S)
redis.call("EXPIRE", signers, KEEP_S)
local found = redis.call("ZRANGE", signs, "-inf", now_ms - silent_ms, "BYSCORE", "LIMIT", 0, most, "WITHSCORES")
for at = 1, #found, 2 do
  local silent, silence_ms = found[at], now_ms - found[at + 1]
  if silence_ms > tonumber(forget_ms) then
    redis.call("ZREM", signs, silent)
    redis.call("HDEL", signers, silent)
  elseif silent ~= mark then
    reply[#reply + 1] = silent
    reply[#reply + 1] = silence_ms
    reply[#reply + 1] = redis.call("HGET", signers, silent) or ""
  end
end
return reply
