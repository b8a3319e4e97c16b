-- Deletes the result and progress of an attempt: a later one must not show them. A failure must not stop a script.
local function forget(task) redis.pcall("HDEL", task, "result", "progress") end
