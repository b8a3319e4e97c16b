-- Stores the priorities that scheduled tasks will have in their lanes. Uses named_ids, priorities, outcomes,
-- task_prefix.
for nth, id in ipairs(named_ids) do
  if priorities[nth] ~= "0" and (outcomes == 1 or outcomes[nth] == 1) then
    redis.call("HSET", task_prefix .. id, "priority", priorities[nth])
  end
end
