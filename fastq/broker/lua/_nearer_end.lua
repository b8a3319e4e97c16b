-- Uses active, first: an id of the call, or nil; turns side, the end of active from which to look.
-- Before ours may lie long tasks of other servers, of which the caller knows nothing: LREM would pass all of them for
-- each task. A look for the first of ours tells, and costs no more than 1000 elements do.
local function is_near(from) return redis.call("LPOS", active, first, "RANK", from, "MAXLEN", 1000) end
if first and not is_near(side) and is_near(-side) then side = -side end
