-- Returns the pool of a lane: what is before its first colon.
local function pool_of(lane) return string.match(lane, "^([^:]+):") end
