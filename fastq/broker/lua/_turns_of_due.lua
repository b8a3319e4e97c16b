-- A lane that is full of what is due is a sequence, which waits for it. Uses named_ids, lane_of, only_lanes.
local names, is_named = {}, {}
for nth in ipairs(named_ids) do
  local lane = lane_of[nth]
  if lane and not is_named[lane] then
    is_named[lane] = true
    names[#names + 1] = lane
  end
  if lane and redis.pcall("SISMEMBER", queue_prefix .. "h:" .. lane, named_ids[nth]) == 1 then
    redis.call("ZREM", full_lanes, lane)
  end
end
give_turns(only_lanes(names))
