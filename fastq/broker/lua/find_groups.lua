--[[ find_groups: scan a stretch of all keys for groups and aggregation sets of a queue, listed or not.
KEYS[1] groups            asynq:{q}:groups
KEYS[2] aggregation_sets  asynq:{q}:aggregation_sets
ARGV[1] group_prefix      asynq:{q}:g:
ARGV[2] pattern           group_prefix as a pattern of SCAN, with * at the end
ARGV[3] cursor            SCAN's: 0 at first, then the one returned, until that is 0
ARGV[4] count             keys to look at, about
builds  what SCAN finds, which begins with group_prefix
returns list: cursor, then key, size, 1 if it is listed or 0, and so on; a key may come twice
asynq   none (its recoverer gives tasks back to groups without listing them)
]]
local groups, aggregation_sets = KEYS[1], KEYS[2]
local group_prefix, pattern, cursor, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local found = redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", count)
local reply = {found[1]}
for _, key in ipairs(found[2]) do
  if redis.call("TYPE", key).ok == "zset" then
    local is_group = redis.call("SISMEMBER", groups, string.sub(key, #group_prefix + 1)) == 1
    reply[#reply + 1] = key
    reply[#reply + 1] = redis.call("ZCARD", key)
    reply[#reply + 1] = (is_group or redis.call("ZSCORE", aggregation_sets, key)) and 1 or 0
  end
end
return reply
