--[[ set_archive_rule: set the rule of a queue's archive; it expires unless servers of the queue look at it.
KEYS[1] archive_rule  asynq:{q}:archive_rule
ARGV[1] most          tasks that the archive keeps
ARGV[2] ttl           seconds for which the archive keeps them
ARGV[3] full          what happens when it is full
ARGV[4] rule_ttl      seconds until the rule expires
builds  none
returns 1
asynq   none
]]
local archive_rule = KEYS[1]
local most, ttl, full, rule_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
redis.call("HSET", archive_rule, "max", most, "ttl", ttl, "full", full)
return redis.call("EXPIRE", archive_rule, rule_ttl)
