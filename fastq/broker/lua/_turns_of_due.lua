local names, is_named = {}, {}
for nth in ipairs(named_ids) do
  local lane = lane_of[nth]
  if lane and not is_named[lane] then
    is_named[lane] = true
    names[#names + 1] = lane
  end
end
give_turns(only_lanes(names))
