--[[ scan_keys: scan a stretch of all keys of one node.
KEYS[1] pending  asynq:{q}:pending of a queue, listed or not, that would be on the node
ARGV[1] pattern  SCAN's
ARGV[2] cursor   SCAN's: 0 at first, then the one returned, until that is 0
ARGV[3] count    keys to look at, about
builds  none
returns list: cursor, keys
asynq   none
]]
local pending = KEYS[1]
local pattern, cursor, count = ARGV[1], ARGV[2], ARGV[3]
redis.call("EXISTS", pending)
return redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", count)
