--[[ node_memory: read how much memory one node of a cluster uses, and how much it may use.
KEYS[1] pending  asynq:{q}:pending of a queue, listed or not, that would be on the node
builds  none
returns the text of INFO memory
asynq   none
]]
local pending = KEYS[1]
redis.call("EXISTS", pending)
return redis.call("INFO", "memory")
