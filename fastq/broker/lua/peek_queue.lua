--[[ peek_queue: read the latest ids of a queue's lists and sets, and their sizes, atomically.
KEYS[1] pending          asynq:{q}:pending
KEYS[2] active           asynq:{q}:active
KEYS[3] scheduled        asynq:{q}:scheduled
KEYS[4] retry            asynq:{q}:retry
KEYS[5] archived         asynq:{q}:archived
KEYS[6] completed        asynq:{q}:completed
KEYS[7] processed_total  asynq:{q}:processed
ARGV[1] window           ids to read of each at most; of the sets those with the highest scores
builds  none
returns list: size and ids of each of the first six keys, then the counter as text, "" if there is none
asynq   none
cost    0.2 ms with a window of 200
]]
local pending, active, scheduled, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local archived, completed, processed_total = KEYS[5], KEYS[6], KEYS[7]
local window = ARGV[1]
local reply = {}
for _, list in ipairs({pending, active}) do
  reply[#reply + 1] = redis.call("LLEN", list)
  reply[#reply + 1] = redis.call("LRANGE", list, 0, window - 1)
end
for _, set in ipairs({scheduled, retry, archived, completed}) do
  reply[#reply + 1] = redis.call("ZCARD", set)
  reply[#reply + 1] = redis.call("ZRANGE", set, 0, window - 1, "REV")
end
reply[#reply + 1] = redis.call("GET", processed_total) or ""
return reply
