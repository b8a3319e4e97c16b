-- Forgets what an attempt has told: nothing of it is given for a later one. A failure must not stop a script half-way.
local function forget(task) redis.pcall("HDEL", task, "result", "progress") end
