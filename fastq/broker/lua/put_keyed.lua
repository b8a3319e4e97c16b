--[[ put_keyed: put tasks whose ids are their keys; an existing task is kept, replaced, put off, or run once more.
KEYS[1] pending       asynq:{q}:pending
KEYS[2] scheduled     asynq:{q}:scheduled
KEYS[3] completed     asynq:{q}:completed
KEYS[4] archived      asynq:{q}:archived
KEYS[5] again         asynq:{q}:again
ARGV[1] task_prefix   asynq:{q}:t:
ARGV[2] now_ns        unix nanoseconds
ARGV[3] due_channel   asynq:{q}:due, told the earliest time if it is before all in scheduled
ARGV[4] width         values a task: 3 where all run at once, else 5; one more in a repeat of a lost call
ARGV[5...] tasks      width values each: id, message, policy, then run_at or "" and latest run_at or "", mark
builds  task_prefix .. id, queue_prefix .. "h:" .. the group of a replaced task, same hash tag
        policy: keep, replace, postpone or rerun an existing task; run_at: unix seconds; mark: text in no other message
returns list, for each task a code and a fact or "": 1 put | 0 the id is of a task that cannot be replaced |
  2 kept, its state | 3 replaced, its state | 4 put off, unix seconds to run at | 5 it runs again after the present run
  | 6 an earlier sending has put it | 7 an earlier sending has put it behind the present run
asynq   none
cost    2.3 us a task at 500 tasks a call, kept 1.0, replaced 1.8, put off 3.7; enqueue took 1.8 in the same run
        (benchmarks/bench_scripts.py)
]]
local pending, scheduled, completed, archived, again = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task_prefix, now_ns, due_channel, width = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local has_times, is_repeat, behind, reply, told = width >= 5, width % 2 == 0, width - 1, {}, 0

-- A call that only finds tasks to keep ends here, and writes nothing. Asking for rights would take longer than the rest
-- of the call.
local passed = 0
for at = 5, #ARGV, width do
  local state = not is_repeat and ARGV[at + 2] == "keep" and redis.pcall("HGET", task_prefix .. ARGV[at], "state")
  if type(state) ~= "string" or state == "completed" or state == "archived" then break end
  reply[told + 1], reply[told + 2] = 2, state
  passed, told = passed + width, told + 2
end
if passed > #ARGV - 5 then return reply end
-- rights

-- include: due_times

-- include: put_key

local function found(id, mark)
  local message = redis.pcall("HGET", task_prefix .. id, "msg")
  if type(message) == "string" and string.find(message, mark, 1, true) then return 6 end
  if string.find(redis.call("HGET", again, id) or "", mark, 1, true) then return 7 end
end

for at = 5 + passed, #ARGV, width do
  local id, run_at, latest, code, more = ARGV[at], "", "", nil, ""
  if has_times then run_at, latest = ARGV[at + 3], ARGV[at + 4] end
  if is_repeat then code = found(id, ARGV[at + behind]) end
  if not code then code, more = put(id, ARGV[at + 1], ARGV[at + 2], run_at, latest) end
  reply[told + 1], reply[told + 2] = code, more
  told = told + 2
end
end_of_puts()
return reply
