--[[ forward: move tasks whose time has come from scheduled or retry to pending, or to their group.
KEYS[1] waiting      asynq:{q}:scheduled or asynq:{q}:retry
KEYS[2] pending      asynq:{q}:pending
KEYS[3] groups       asynq:{q}:groups
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] group_prefix asynq:{q}:g:
ARGV[3] now_ns       unix nanoseconds
ARGV[4] now          unix seconds
ARGV[5] limit        tasks at most
builds  task_prefix .. id, group_prefix .. group, same hash tag
returns list: tasks taken, ids dropped that had no task, unix seconds at which the next is due or ""
asynq   forwardCmd (which does not list the group, and makes a hash for an id that has none)
cost    1.6 us a task at 500 tasks a call, 1.8 at 100 (benchmarks/bench_scripts.py)
]]
local waiting, pending, groups = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, group_prefix, now_ns, now, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ids = redis.call("ZRANGE", waiting, "-inf", now, "BYSCORE", "LIMIT", 0, limit)
local due, ghosts = {}, 0
for _, id in ipairs(ids) do
  local task = task_prefix .. id
  -- A key that is no hash is as good as none: its error must not keep the tasks behind it waiting. Any other error says
  -- nothing of the task: in a cluster it may be on its way to another node.
  local found = redis.pcall("HMGET", task, "msg", "group")
  if found.err and not string.find(found.err, "WRONGTYPE", 1, true) then return found end
  if not found[1] then
    ghosts = ghosts + 1
  elseif found[2] and found[2] ~= "" then
    redis.call("HSET", task, "state", "aggregating")
    redis.call("ZADD", group_prefix .. found[2], now, id)
    redis.call("SADD", groups, found[2])
  else
    redis.call("HSET", task, "state", "pending", "pending_since", now_ns)
    due[#due + 1] = id
  end
end
if #due > 0 then redis.call("LPUSH", pending, unpack(due)) end
if #ids > 0 then redis.call("ZREM", waiting, unpack(ids)) end
local next_due = redis.call("ZRANGE", waiting, 0, 0, "WITHSCORES")
return {#ids, ghosts, next_due[2] or ""}
