-- Deletes the result and progress of an attempt, because a later attempt must not show them. A failure must not stop
-- the script.
local function forget(task) redis.pcall("HDEL", task, "result", "progress") end
