--[[ put_again: put the tasks that were enqueued by key while a task with that key ran, if that task runs no more.
KEYS[1] pending       asynq:{q}:pending
KEYS[2] scheduled     asynq:{q}:scheduled
KEYS[3] completed     asynq:{q}:completed
KEYS[4] archived      asynq:{q}:archived
KEYS[5] again         asynq:{q}:again
ARGV[1] task_prefix   asynq:{q}:t:
ARGV[2] now_ns        unix nanoseconds
ARGV[3] due_channel   asynq:{q}:due, told the earliest time if it is before all in scheduled
ARGV[4] max_bytes     bytes of messages at most; the first that goes beyond it is the last one put
ARGV[5...] ids        task ids
builds  task_prefix .. id, queue_prefix .. "h:" .. the group of a replaced task, same hash tag
returns number of tasks put; a task that waits for another attempt gets the newer message, and counts
asynq   none
]]
local pending, scheduled, completed, archived, again = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task_prefix, now_ns, due_channel, max_bytes = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

-- include: due_times

-- include: put_key

local count, bytes = 0, 0
for at = 5, #ARGV do
  local id = ARGV[at]
  local kept = redis.call("HGET", again, id)
  local run_at, latest, message = read_again(kept or "")
  if message and redis.pcall("HGET", task_prefix .. id, "state") ~= "active" then
    local code = put(id, message, run_at == "" and "rerun" or "postpone", run_at, latest)
    if code ~= 0 then count = count + 1 end
    bytes = bytes + #message
    if bytes >= max_bytes then break end
  end
end
end_of_puts()
return count
