--[[ read_aggregation_set: read a stretch of a set's tasks, in order, and drop ids without task.
KEYS[1] aggregation_set  asynq:{q}:g:{group}:{set}
ARGV[1] task_prefix      asynq:{q}:t:
ARGV[2] start            rank of the first
ARGV[3] limit            tasks at most
ARGV[4] max_bytes        bytes of messages at most; the first that goes beyond it is the last one read
builds  task_prefix .. id, same hash tag
returns list: ids dropped, then id, message, id, message, ...
asynq   readAggregationSetCmd (which reads all of it, and is confused by an id without a task)
]]
local aggregation_set = KEYS[1]
local task_prefix, start, limit, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local reply, dangling, bytes = {0}, 0, 0
for _, id in ipairs(redis.call("ZRANGE", aggregation_set, start, start + limit - 1)) do
  -- A key that is not a hash is no task: its error must not keep the others from being aggregated. Any other
  -- error proves nothing about the task: in a cluster it may be moving to another node.
  local message = redis.pcall("HGET", task_prefix .. id, "msg")
  if type(message) == "table" and not string.find(message.err, "WRONGTYPE", 1, true) then return message end
  if type(message) == "string" then
    reply[#reply + 1] = id
    reply[#reply + 1] = message
    bytes = bytes + #message
    if bytes >= max_bytes then break end
  else
    redis.call("ZREM", aggregation_set, id)
    dangling = dangling + 1
  end
end
reply[1] = dangling
return reply
