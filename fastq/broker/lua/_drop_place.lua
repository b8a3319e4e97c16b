-- Frees the place that a task has kept in its sequence, and now gives up for good. The check of the full lane would do
-- so, too, but comes only if tasks wait in the lane. Uses task_prefix.
local queue_prefix = string.sub(task_prefix, 1, -3)
local function drop_place(lane, id)
  if lane and lane ~= "" then redis.pcall("SREM", queue_prefix .. "h:" .. lane, id) end
end
