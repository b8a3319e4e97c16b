-- Sets ended (the ids with outcome 1, by lane) and order (these lanes, in the order of the call). Uses named_ids,
-- lane_of, outcomes.
local ended, order = {}, {}
for nth, id in ipairs(named_ids) do
  local lane = lane_of[nth]
  if lane and (outcomes == 1 or outcomes[nth] == 1) then
    if not ended[lane] then
      ended[lane] = {}
      order[#order + 1] = lane
    end
    ended[lane][#ended[lane] + 1] = id
  end
end
