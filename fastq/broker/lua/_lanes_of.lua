-- Reads in which lanes the tasks of the call are, as the script may delete them. Uses named_ids, task_prefix.
local lane_of = {}
for nth, id in ipairs(named_ids) do
  local lane = redis.pcall("HGET", task_prefix .. id, "group")
  lane_of[nth] = type(lane) == "string" and lane ~= "" and lane
end
-- Removes nothing. The right to it, and the type of the key, are asked for before anything is written.
redis.call("SREM", groups, "")
