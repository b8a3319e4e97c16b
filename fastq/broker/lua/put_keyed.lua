--[[ put_keyed: put tasks whose ids are their keys; what is there already is kept, replaced, put off, or run once more.
KEYS[1] pending       asynq:{q}:pending
KEYS[2] scheduled     asynq:{q}:scheduled
KEYS[3] completed     asynq:{q}:completed
KEYS[4] archived      asynq:{q}:archived
KEYS[5] again         asynq:{q}:again
ARGV[1] task_prefix   asynq:{q}:t:
ARGV[2] now_ns        unix nanoseconds
ARGV[3] due_channel   asynq:{q}:due, for the earliest time, where it is earlier than all in scheduled
ARGV[4] is_repeat     1 if an earlier sending of this call may have been carried out, else ""
ARGV[5...] tasks      six values each: id, message, policy, run_at or "", latest run_at or "", what only its message has
builds  task_prefix .. id, same hash tag
        policy: keep, replace, postpone or rerun what is there; run_at: unix seconds
returns list, for each task a code and what else is known of it: 1 put | 0 the id is of a task that cannot be replaced |
  2 kept, its state | 3 replaced, its state | 4 put off, unix seconds to run at | 5 it runs again after the present run
  | 6 an earlier sending has put it | 7 an earlier sending has put it behind the present run
asynq   none
cost    new 2.1 us a task, kept 0.9, replaced 1.4, put off 2.9 at 500 tasks a call (benchmarks/bench_keyed.py)
]]
local pending, scheduled, completed, archived, again = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task_prefix, now_ns, due_channel, is_repeat = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- include: due_times

-- include: put_key

local function found(id, mark)
  local message = redis.pcall("HGET", task_prefix .. id, "msg")
  if type(message) == "string" and string.find(message, mark, 1, true) then return 6 end
  if string.find(redis.call("HGET", again, id) or "", mark, 1, true) then return 7 end
end

local reply = {}
for at = 5, #ARGV, 6 do
  local id, code, more = ARGV[at], is_repeat == "1" and found(ARGV[at], ARGV[at + 5]), ""
  if not code then code, more = put(id, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]) end
  reply[#reply + 1] = code
  reply[#reply + 1] = more
end
end_of_puts()
return reply
