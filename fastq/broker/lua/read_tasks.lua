--[[ read_tasks: read tasks by id: message, state, result, number of losses, progress, and score in the state's set.
KEYS[1] scheduled    asynq:{q}:scheduled
KEYS[2] retry        asynq:{q}:retry
KEYS[3] lease        asynq:{q}:lease
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] max_bytes    bytes of messages and results at most; the first that goes beyond it is the last one read
ARGV[3] most         bytes to which a payload, a result and an error are cut; "" to cut none
ARGV[4...] ids       task ids
builds  task_prefix .. id, same hash tag
returns list: nine values for each task that was read: message, state, result, lost, progress, score, nil for what is
  missing; the full sizes of payload, result and message, nil for what was not cut
asynq   getTaskInfoCmd, listMessagesCmd, listZSetEntriesCmd (which read however many there are)
cost    3 us a task of 150 bytes; 0.5 ms a MB that is cut off
]]
local scheduled, retry, lease = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, max_bytes, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local scored = {scheduled = scheduled, retry = retry, active = lease}

-- include: field_at

-- include: cut_field

-- Returns a message whose payload (tag 18) and error (tag 58) are cut to `most` bytes, and the payload's size. The type
-- (tag 10) and all headers together (tag 122) may have 1 000 bytes, if that is more; headers beyond that are left out.
local function head_of(message)
  local parts, kept, at, payload_size, headers_size = {}, 1, 1, 0, 0
  local most_of_names = math.max(most, 1000)
  local most_of = {[10] = most_of_names, [18] = most, [58] = most}
  while at <= #message do
    local tag, start, stop = field_at(message, at)
    -- A broken message stays broken when cut.
    if not stop then return string.sub(message, 1, math.max(most - 1, 0)) .. "\7", #message end
    if tag == 18 then payload_size = stop - start end
    if tag == 122 then headers_size = headers_size + stop - start end
    if tag == 122 and headers_size > most_of_names then
      parts[#parts + 1] = string.sub(message, kept, at - 1)
      kept = stop
    elseif most_of[tag] and stop - start > most_of[tag] then
      parts[#parts + 1] = string.sub(message, kept, at - 1)
      parts[#parts + 1] = cut_field(message, at, start, most_of[tag], tag ~= 18)
      kept = stop
    end
    at = stop
  end
  parts[#parts + 1] = string.sub(message, kept)
  return table.concat(parts), payload_size
end

local reply, bytes = {}, 0
for at = 4, #ARGV do
  local id = ARGV[at]
  -- A key that is not a hash is no task: its error must not keep the others from being read.
  local found = redis.pcall("HMGET", task_prefix .. id, "msg", "state", "result", "lost", "progress")
  local message, state, result = found[1] or false, found[2] or false, found[3] or false
  local payload_size, result_size, message_size = false, false, false
  -- Bytes that are cut cost time, too: an eighth of the time for sending them.
  bytes = bytes + (#(message or "") + #(result or "")) / 8
  if most and message and #message > most then
    message_size = #message
    message, payload_size = head_of(message)
  end
  if most and result and #result > most then result, result_size = string.sub(result, 1, most), #result end
  reply[#reply + 1] = message
  reply[#reply + 1] = state
  reply[#reply + 1] = result
  reply[#reply + 1] = found[4] or false
  reply[#reply + 1] = found[5] or false
  reply[#reply + 1] = scored[state] and redis.call("ZSCORE", scored[state], id) or false
  reply[#reply + 1] = payload_size
  reply[#reply + 1] = result_size
  reply[#reply + 1] = message_size
  bytes = bytes + #(message or "") + #(result or "")
  if bytes >= max_bytes then break end
end
return reply
