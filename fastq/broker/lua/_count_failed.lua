-- Counts failures. Uses failures, counted, failed, failed_total, stats_expire_at, and wraps of count_processed.
if redis.call("INCRBY", failed, failures) == failures then redis.call("EXPIREAT", failed, stats_expire_at) end
-- The two totals start anew together, so there are never more failures than tasks.
if wraps or counted[4] + failures >= 9223372036854775807 then
  redis.call("SET", failed_total, failures)
else
  redis.call("INCRBY", failed_total, failures)
end
