-- Uses active, first: an id of the call, or nil; turns side, the end of active from which to look.
-- Long tasks of other servers, unknown to the caller, may be in front of ours: LREM would pass all of them for
-- each task. Looking for the first of ours tells, and costs no more than 1000 elements.
local function is_near(from) return redis.call("LPOS", active, first, "RANK", from, "MAXLEN", 1000) end
if first and not is_near(side) and is_near(-side) then side = -side end
