--[[ read_payload: read some bytes of a task's payload or result.
KEYS[1] task         asynq:{q}:t:{id}
ARGV[1] field        "msg" for the payload, "result"
ARGV[2] start        offset of the first byte
ARGV[3] count        bytes to read at most
builds  none
returns the bytes, or nil if there is no such task
asynq   none
cost    0.5 ms a MB of the whole field
]]
local task = KEYS[1]
local field, start, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- include: field_at

local data = redis.call("HGET", task, field)
if not data or field ~= "msg" then return data and string.sub(data, start + 1, start + count) end
local at = 1
while at <= #data do
  local tag, first, stop = field_at(data, at)
  if not stop then return string.sub(data, start + 1, start + count) end
  if tag == 18 then return string.sub(data, first + start, math.min(first + start + count, stop) - 1) end
  at = stop
end
return ""
