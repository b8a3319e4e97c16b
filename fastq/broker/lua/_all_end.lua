-- No lane keeps its places: the tasks of the call have ended for good.
local keeps = {}
