--[[ delete_expired_completed: delete completed tasks whose retention has ended, and return the size of the archive.
KEYS[1] completed     asynq:{q}:completed
KEYS[2] archived      asynq:{q}:archived
KEYS[3] archive_rule  asynq:{q}:archive_rule
ARGV[1] task_prefix   asynq:{q}:t:
ARGV[2] now           unix seconds
ARGV[3] limit         tasks at most
ARGV[4] rule_ttl      seconds until the archive's rule expires, once no server of the queue calls this any more
builds  task_prefix .. id, same hash tag
returns list: tasks deleted, size of completed, size of the archive, and of its rule: dropped, max, ttl, full
asynq   deleteExpiredCompletedTasksCmd
cost    0.8 us a task at 500 tasks a call, 0.9 at 100 (benchmarks/bench_scripts.py)
]]
local completed, archived, archive_rule = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, now, limit, rule_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- Read first, to raise before anything is written if a key has a wrong type.
local size = redis.call("ZCARD", archived)
local dropped, max, ttl, full = unpack(redis.call("HMGET", archive_rule, "dropped", "max", "ttl", "full"))
local ids = redis.call("ZRANGE", completed, "-inf", now, "BYSCORE", "LIMIT", 0, limit)
if dropped or max then redis.call("EXPIRE", archive_rule, rule_ttl) end
for _, id in ipairs(ids) do
  redis.call("DEL", task_prefix .. id)
end
if #ids > 0 then redis.call("ZREM", completed, unpack(ids)) end
return {#ids, redis.call("ZCARD", completed), size, dropped, max, ttl, full}
