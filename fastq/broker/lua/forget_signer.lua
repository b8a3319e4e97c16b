--[[ forget_signer: forget a server whose tasks were taken over, unless it has given a sign meanwhile.
KEYS[1] signs      asynq:fastq:{asynq:servers}:signs
KEYS[2] signers    asynq:fastq:{asynq:servers}:signers
ARGV[1] mark       the server's mark, a fraction in the scores of its leases
ARGV[2] facts      as sign returned them; they change with each sign
builds  none
returns 1 forgotten | 0 it has given a sign
asynq   none
]]
local signs, signers = KEYS[1], KEYS[2]
local mark, facts = ARGV[1], ARGV[2]
if redis.call("HGET", signers, mark) ~= facts then return 0 end
redis.call("ZREM", signs, mark)
redis.call("HDEL", signers, mark)
return 1
