-- These raise if a key has a wrong type, before anything is written. ZCARD would not do: producers have no right to it.
redis.call("HGET", limits, "")
redis.call("ZRANGE", turns, 0, 0)
redis.call("ZRANGE", full_lanes, 0, 0)
