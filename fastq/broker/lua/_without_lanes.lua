-- Leaves the groups that are lanes out of the reply.
local names = {unpack(outcomes, 3)}
local is_lane = {}
for _, name in ipairs(only_lanes(names)) do is_lane[name] = true end
outcomes = {outcomes[1], outcomes[2]}
for _, name in ipairs(names) do
  if not is_lane[name] then outcomes[#outcomes + 1] = name end
end
