-- Uses pending, task_prefix, pending_since, width.
local ids, outcomes, refused = {}, {}, false

for at = 4, #ARGV, width do
  local id, message, lock = ARGV[at], ARGV[at + 1], ""
  local task = task_prefix .. id
  if width == 4 then lock = ARGV[at + 2] end
  local outcome = 1
  if redis.call("EXISTS", task) == 1 then
    outcome = 0
  elseif lock == "" then
    redis.call("HSET", task, "msg", message, "state", "pending", "pending_since", pending_since)
  elseif redis.call("SET", lock, id, "NX", "EX", ARGV[at + 3]) then
    redis.call("HSET", task, "msg", message, "state", "pending", "pending_since", pending_since, "unique_key", lock)
  else
    outcome = -1
  end
  if outcome == 1 then ids[#ids + 1] = id else refused = true end
  outcomes[#outcomes + 1] = outcome
end

local pushed = #ids == 0 or redis.pcall("LPUSH", pending, unpack(ids))
if type(pushed) == "table" then
  -- The write was refused, for example because pending is not a list: undo all writes. A check before would slow down
  -- every call.
  for at = 4, #ARGV, width do
    if outcomes[(at - 4) / width + 1] == 1 then
      redis.call("DEL", task_prefix .. ARGV[at])
      if width == 4 and ARGV[at + 2] ~= "" then redis.call("DEL", ARGV[at + 2]) end
    end
  end
  return pushed
end
if refused then return outcomes end
return 1
