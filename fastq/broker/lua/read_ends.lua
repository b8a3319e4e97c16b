--[[ read_ends: read the states of tasks, the results of completed ones, and the messages of archived ones.
KEYS[1...] tasks    asynq:{q}:t:{id} of each, so that a node that does not have all of them says so
ARGV[1] max_bytes   bytes of results and messages at most; the first beyond that is the last one read; 0 reads none
ARGV[2...] marks    text that each message must contain, else its state is nil: another submit's; "" for any
builds  none
returns list: three values for each task that was read: its state, nil if there is no such task; its result if it is
  completed, its message if it is archived, nil otherwise or if max_bytes is 0; the record of the last failed attempt
  if it is archived, nil otherwise
asynq   none
]]
local max_bytes = tonumber(ARGV[1])
local marks = {unpack(ARGV, 2)}
local left_in = {completed = "result", archived = "msg"}
local reply, bytes = {}, 0
for nth, task in ipairs(KEYS) do
  local state = redis.pcall("HGET", task, "state")
  -- A key that is not a hash is no task. Any other error may not be the task's fault.
  if type(state) == "table" then
    if not string.find(state.err, "WRONGTYPE", 1, true) then return state end
    state = false
  end
  local left, attempt
  local mark = marks[nth] or ""
  if state and mark ~= "" then
    local message = redis.call("HGET", task, "msg") or ""
    if not string.find(message, mark, 1, true) then state = false end
    bytes = bytes + #message
  end
  if max_bytes > 0 and state and left_in[state] then
    left = redis.call("HGET", task, left_in[state])
    if state == "archived" then attempt = string.sub(redis.call("HGET", task, "attempts") or "", -160) end
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = left or false
  reply[#reply + 1] = attempt or false
  bytes = bytes + #(left or "")
  if max_bytes > 0 and bytes >= max_bytes then break end
end
return reply
