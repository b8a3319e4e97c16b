-- Reads the ids of the due tasks, which the plain script will forward.
local named_ids = {}
for _, from in ipairs({scheduled, retry}) do
  for _, id in ipairs(redis.call("ZRANGE", from, "-inf", now, "BYSCORE", "LIMIT", 0, limit)) do
    named_ids[#named_ids + 1] = id
  end
end
