-- Reads the counters before anything is written: a value that is no number is an error. Uses counters: their keys.
local counted = {}
for at, key in ipairs(counters) do
  counted[at] = tonumber(redis.call("GET", key) or 0)
  if not counted[at] then return redis.error_reply("WRONGTYPE " .. key .. " is not a number") end
end
