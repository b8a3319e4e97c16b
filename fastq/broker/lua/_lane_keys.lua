-- These raise for a key of another type before anything is written; producers have no right to ZCARD.
redis.call("HGET", limits, "")
redis.call("ZRANGE", turns, 0, 0)
redis.call("ZRANGE", full_lanes, 0, 0)
