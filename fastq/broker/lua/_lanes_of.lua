-- Reads the lanes of the call's tasks before the plain script, which may delete the tasks. Uses named_ids, task_prefix.
local lane_of = {}
for nth, id in ipairs(named_ids) do
  local lane = redis.pcall("HGET", task_prefix .. id, "group")
  lane_of[nth] = type(lane) == "string" and lane ~= "" and lane
end
-- Removes nothing. If the right to SREM is missing or the key has a wrong type, it raises before anything is written.
redis.call("SREM", groups, "")
