-- The last words of the call are the lanes of its tasks: to read them from the tasks would take a fifth of its time.
-- The plain script gets the words before them. Uses count, groups.
local named_ids, lane_of, words = {unpack(ARGV, 6, 5 + count)}, {}, #ARGV - count
for at = 1, count do
  local lane = ARGV[words + at]
  lane_of[at] = lane ~= "" and lane
end
local ARGV = {unpack(ARGV, 1, words)}
-- Removes nothing. If the right to it is missing or the key has another type, it fails before anything is written.
redis.call("SREM", groups, "")
