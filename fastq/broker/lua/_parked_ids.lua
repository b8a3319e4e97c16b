-- Reads the tasks to park, and how long their lanes rest. The plain script is given the ids alone.
local named_ids, rests = {}, {}
for at = 5, #ARGV, 2 do
  named_ids[#named_ids + 1] = ARGV[at]
  rests[#named_ids] = tonumber(ARGV[at + 1])
end
local ARGV = {ARGV[1], ARGV[2], ARGV[3], ARGV[4], unpack(named_ids)}
