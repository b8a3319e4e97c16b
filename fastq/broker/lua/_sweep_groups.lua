-- Takes up to ten groups off their lists whose scheduled tasks are all gone. Uses groups, scheduled_groups, scheduled,
-- group_prefix, earliest. As unlist_due_groups, which servers of fastq call; where all are Go's, nothing else does it.
-- Users without the right to it leave them.
local function sweep_groups()
  local before = "(" .. string.format("%.17g", earliest(scheduled))
  for _, name in ipairs(redis.call("ZRANGE", scheduled_groups, "-inf", before, "BYSCORE", "LIMIT", 0, 10)) do
    if redis.call("EXISTS", group_prefix .. name) == 0 then redis.pcall("SREM", groups, name) end
    redis.pcall("ZREM", scheduled_groups, name)
  end
end
