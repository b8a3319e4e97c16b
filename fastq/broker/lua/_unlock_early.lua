-- Releases the lock of an archived task if its message has a header fastq-until: such a lock ends when its task is
-- archived. Uses field_at.
local early = "\n\11fastq-until\18" -- how the header begins

local function unlock_early(task, id, lock)
  if not lock then return end
  local message = redis.pcall("HMGET", task, "msg")[1] or ""
  if not string.find(message, early, 1, true) then return end
  local at = 1
  while at do
    local tag, first, behind = field_at(message, at)
    if tag == 122 and string.sub(message, first, first + #early - 1) == early then
      if redis.pcall("GET", lock) == id then redis.call("DEL", lock) end
      return
    end
    at = behind
  end
end
