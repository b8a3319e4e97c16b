--[[ put_keyed_tick: put the task of a named scheduler entry by its key, once for each of the entry's ticks.
KEYS[1] tick          asynq:{q}:tick:{due}:{name}
KEYS[2] last_tick     asynq:{q}:last_tick:{name}
KEYS[3] pending       asynq:{q}:pending
KEYS[4] scheduled     asynq:{q}:scheduled
KEYS[5] completed     asynq:{q}:completed
KEYS[6] archived      asynq:{q}:archived
KEYS[7] again         asynq:{q}:again
ARGV[1] by            the id of the entry that asks; each scheduler has its own
ARGV[2] due           the tick, unix seconds
ARGV[3] tick_ttl      seconds for which the tick is known to be done
ARGV[4] plan          the entry's zone and spec, or "" if later schedulers need not know the last tick
ARGV[5] last_ttl      seconds for which the last tick is known
ARGV[6] task_prefix   asynq:{q}:t:
ARGV[7] now_ns        unix nanoseconds
ARGV[8] due_channel   asynq:{q}:due, told the time if it is before all in scheduled
ARGV[9] new_id        task id, which is its key
ARGV[10] new_message  encoded
ARGV[11] new_policy   keep, replace, postpone or rerun what is there
ARGV[12] new_run_at   unix seconds to run at, or ""
ARGV[13] new_latest   latest unix seconds to run at, or ""
builds  task_prefix .. id, queue_prefix .. "h:" .. the group of a replaced task, same hash tag
returns list: a code and a fact, as put_keyed returns them; 1 also if an earlier sending of this call has put it;
  -2 put by another scheduler
asynq   none
]]
local tick, last_tick = KEYS[1], KEYS[2]
local pending, scheduled, completed, archived, again = KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local by, due, tick_ttl, plan, last_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local task_prefix, now_ns, due_channel = ARGV[6], ARGV[7], ARGV[8]
local new_id, new_message, new_policy, new_run_at, new_latest = ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13]

local done_by = redis.call("GET", tick)
if done_by then return {done_by == by and 1 or -2, ""} end
local noted = string.match(redis.call("GET", last_tick) or "", "^%d+")

-- include: due_times

-- include: put_key

local code, more = put(new_id, new_message, new_policy, new_run_at, new_latest)
end_of_puts()
if code ~= 0 then redis.call("SET", tick, by, "EX", tick_ttl) end
-- A later scheduler continues after this tick, even if the task was refused.
if plan ~= "" and (not noted or tonumber(noted) < tonumber(due)) then
  redis.call("SET", last_tick, due .. ":" .. plan, "EX", last_ttl)
end
return {code, more}
