-- Uses due_channel.
-- Forwarders sleep until the earliest time that they know. A user without the right to publish cannot tell them: they
-- find the task at their next look, and the call must not fail for it once the task is written.
local function earliest(waiting)
  return tonumber(redis.call("ZRANGE", waiting, 0, 0, "WITHSCORES")[2] or math.huge)
end
local function tell(unix_s) redis.pcall("PUBLISH", due_channel, unix_s) end
