--[[ enqueue: put tasks into pending, each unless its id exists or its unique lock is held.
KEYS[1] pending        asynq:{q}:pending
ARGV[1] task_prefix    asynq:{q}:t:
ARGV[2] pending_since  unix nanoseconds
ARGV[3] width          arguments a task: 2 (id, message) or 4 (id, message, lock key or "", lock seconds)
ARGV[4...] tasks       width values for each
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns 1 when every task was put, else a list: 1 put | 0 id exists | -1 lock held
asynq   enqueueCmd, enqueueUniqueCmd (which take the lock before they look at the id, and leak it)
cost    1.5 us a task at 500 tasks a call; 3.0 with unique locks (benchmarks/bench_scripts.py)
]]
local pending = KEYS[1]
local task_prefix, pending_since, width = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- include: put_pending
