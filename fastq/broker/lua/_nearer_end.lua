-- Changes side, the end of active from which LREM looks, if our tasks are near the other end only. Uses active, and
-- first: an id of the call, or nil. The caller does not know of other servers' long tasks, which may be in front of
-- ours: LREM would pass all of them for each task. The search for the first of ours visits at most 1000 elements from
-- each end.
local function is_near(from) return redis.call("LPOS", active, first, "RANK", from, "MAXLEN", 1000) end
if first and not is_near(side) and is_near(-side) then side = -side end
