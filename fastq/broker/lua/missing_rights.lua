--[[ missing_rights: tell which of some commands the user of Redis may not run on a queue's keys; changes nothing.
KEYS[1] pending          asynq:{q}:pending
ARGV[1...] commands      in lower case
builds  none
returns list: those that it may not run; empty on Redis 6.2, which cannot tell
asynq   none
]]
local pending = KEYS[1]
local may, missing = redis.acl_check_cmd, {}
for at = 1, #ARGV do
  local command = ARGV[at]
  if may and not may(command, pending, pending) then missing[#missing + 1] = command end
end
return missing
