--[[ read_tasks: read tasks by id: message, state, result, number of losses, progress, and the score of the state.
KEYS[1] scheduled    asynq:{q}:scheduled
KEYS[2] retry        asynq:{q}:retry
KEYS[3] lease        asynq:{q}:lease
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] max_bytes    messages and results at most; the first that goes beyond it is the last one read
ARGV[3...] ids       task ids
builds  task_prefix .. id, same hash tag
returns list: six values for each task that was read: message, state, result, lost, progress, score; nil for none
asynq   getTaskInfoCmd, listMessagesCmd, listZSetEntriesCmd (which read however many there are)
cost    3 us a task of 150 bytes
]]
local scheduled, retry, lease = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, max_bytes = ARGV[1], tonumber(ARGV[2])
local scored = {scheduled = scheduled, retry = retry, active = lease}
local reply, bytes = {}, 0
for at = 3, #ARGV do
  local id = ARGV[at]
  -- A key that is not a hash counts as none: its error must not keep the others from being read.
  local found = redis.pcall("HMGET", task_prefix .. id, "msg", "state", "result", "lost", "progress")
  local message, state, result = found[1] or false, found[2] or false, found[3] or false
  reply[#reply + 1] = message
  reply[#reply + 1] = state
  reply[#reply + 1] = result
  reply[#reply + 1] = found[4] or false
  reply[#reply + 1] = found[5] or false
  reply[#reply + 1] = scored[state] and redis.call("ZSCORE", scored[state], id) or false
  bytes = bytes + #(message or "") + #(result or "")
  if bytes >= max_bytes then break end
end
return reply
