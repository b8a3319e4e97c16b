-- The tasks that are scheduled, and their lanes; see lanes_of.
local named_ids = {}
local lane_of = {}
for at = 4, #ARGV, 6 do
  named_ids[#named_ids + 1] = ARGV[at]
  lane_of[#named_ids] = ARGV[at + 5] ~= "" and ARGV[at + 5]
end
