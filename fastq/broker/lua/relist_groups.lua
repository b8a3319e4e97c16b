--[[ relist_groups: scan a stretch of all keys for groups that have tasks but are not listed, and list them.
KEYS[1] groups        asynq:{q}:groups
ARGV[1] group_prefix  asynq:{q}:g:
ARGV[2] task_prefix   asynq:{q}:t:
ARGV[3] pattern       group_prefix as a pattern of SCAN, with * at the end
ARGV[4] cursor        SCAN's: 0 at first, then the one returned, until that is 0
ARGV[5] count         keys to look at, about
builds  task_prefix .. id, same hash tag
returns list: cursor, number of groups listed
asynq   none (forwardCmd puts a task into a group that may have been taken off the list meanwhile)
]]
local groups = KEYS[1]
local group_prefix, task_prefix, pattern, cursor, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local found = redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", count, "TYPE", "zset")
local listed = 0
for _, key in ipairs(found[2]) do
  local name = string.sub(key, #group_prefix + 1)
  if redis.call("SISMEMBER", groups, name) == 0 then
    -- The key of an aggregation set looks like a group's, but its tasks name another group. The first few tasks are
    -- read, since one id may have no task.
    for _, id in ipairs(redis.call("ZRANGE", key, 0, 9)) do
      if redis.pcall("HGET", task_prefix .. id, "group") == name then
        listed = listed + redis.call("SADD", groups, name)
        break
      end
    end
  end
end
return {found[1], listed}
