-- Raises if the key has a wrong type, before a task is taken off active and cannot be stored.
for nth in ipairs(named_ids) do
  if lane_of[nth] then redis.call("ZCARD", queue_prefix .. "g:" .. lane_of[nth]) end
end
