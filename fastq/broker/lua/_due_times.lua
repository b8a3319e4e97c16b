-- Uses due_channel. Forwarders sleep until the earliest due time that they know; `tell` publishes an earlier one. If
-- the user has no right to publish, forwarders find the task at their next look. The missing right must not make the
-- call fail, since the task is already written.
local function earliest(waiting)
  return tonumber(redis.call("ZRANGE", waiting, "0", "0", "WITHSCORES")[2] or math.huge)
end
local function tell(unix_s) redis.pcall("PUBLISH", due_channel, unix_s) end
