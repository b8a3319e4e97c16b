-- Takes up to ten groups without scheduled tasks off scheduled_groups, and off groups, too, if they have no tasks at
-- all. Servers of fastq do the same by unlist_due_groups; this is for queues that only Go's servers serve. A user
-- without the rights leaves the groups listed. Uses groups, scheduled_groups, scheduled, group_prefix, earliest.
local function sweep_groups()
  local before = "(" .. string.format("%.17g", earliest(scheduled))
  for _, name in ipairs(redis.call("ZRANGE", scheduled_groups, "-inf", before, "BYSCORE", "LIMIT", 0, 10)) do
    if redis.call("EXISTS", group_prefix .. name) == 0 then redis.pcall("SREM", groups, name) end
    redis.pcall("ZREM", scheduled_groups, name)
  end
end
