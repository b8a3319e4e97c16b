-- Reads the tasks to schedule, their lanes (as lanes_of does) and priorities. The plain script, which knows no
-- priorities, gets the arguments without them.
local named_ids, words, priorities = {}, {}, {}
local lane_of = {}
for at = 4, #ARGV, 7 do
  named_ids[#named_ids + 1] = ARGV[at]
  lane_of[#named_ids] = ARGV[at + 5] ~= "" and ARGV[at + 5]
  priorities[#named_ids] = ARGV[at + 6]
  for more = 0, 5 do words[#words + 1] = ARGV[at + more] end
end
local ARGV = {ARGV[1], ARGV[2], ARGV[3], unpack(words)}
