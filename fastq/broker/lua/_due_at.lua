-- Returns the Unix second from which a group is due (nil if it is empty), and its size. Uses max_size, grace,
-- max_delay.
local function due_at(key)
  local size = redis.pcall("ZCARD", key)
  if type(size) ~= "number" or size == 0 then return nil, 0 end
  if max_size > 0 and size >= max_size then return 0, size end
  local at = tonumber(redis.call("ZRANGE", key, -1, -1, "WITHSCORES")[2]) + grace
  if max_delay > 0 then
    at = math.min(at, tonumber(redis.call("ZRANGE", key, 0, 0, "WITHSCORES")[2]) + max_delay)
  end
  return at, size
end
