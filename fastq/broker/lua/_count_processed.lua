-- Counts runs that have ended. Sets wraps if the total starts anew. Uses finished, counted, processed, processed_total,
-- stats_expire_at.
if redis.call("INCRBY", processed, finished) == finished then redis.call("EXPIREAT", processed, stats_expire_at) end
local wraps = counted[2] + finished >= 9223372036854775807
if wraps then
  redis.call("SET", processed_total, finished)
else
  redis.call("INCRBY", processed_total, finished)
end
