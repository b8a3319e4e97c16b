--[[ publish_completed: publish to a client which of its tasks have just been completed.
KEYS[1] completed   asynq:{q}:completed
ARGV[1] channel     of the client's inbox
ARGV[2] opening     the message up to the first task's end
ARGV[3...] ends     three values each: id, unix seconds it is kept until, the task's end as JSON
builds  none
returns number of ends published; a task that is not kept until that second is left out, as its write was refused
asynq   none
]]
local completed, channel, opening = KEYS[1], ARGV[1], ARGV[2]
local ids, told = {}, {}
for at = 3, #ARGV, 3 do ids[#ids + 1] = ARGV[at] end
for nth, score in ipairs(redis.call("ZMSCORE", completed, unpack(ids))) do
  local at = 3 * nth
  if score == ARGV[at + 1] then told[#told + 1] = ARGV[at + 2] end
end
if #told > 0 then redis.call("PUBLISH", channel, opening .. table.concat(told, ",") .. "]}") end
return #told
