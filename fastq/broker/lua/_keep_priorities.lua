-- Tasks reach their lanes by their priorities when they are due. Uses named_ids, priorities, outcomes, task_prefix.
for nth, id in ipairs(named_ids) do
  if priorities[nth] ~= "0" and (outcomes == 1 or outcomes[nth] == 1) then
    redis.call("HSET", task_prefix .. id, "priority", priorities[nth])
  end
end
