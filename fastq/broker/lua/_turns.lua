-- Uses turns, full_lanes, bell, and the functions of _lanes.lua. Wakes servers, unless the queue itself is full
-- (full_lanes has the entry ""): they could take nothing.
local function ring(is_full)
  if not is_full and redis.call("EXISTS", bell) == 0 then redis.call("LPUSH", bell, "1") end
end

-- Gives a turn to each of these lanes that is not full and has none. If its pool is full, the lane waits for the pool.
local function give_turns(lanes)
  if #lanes == 0 then return end
  local since, asked, pools = microseconds(now_us()), {unpack(lanes)}, {}
  for _, lane in ipairs(lanes) do
    local pool = pool_of(lane)
    if pool and not pools[pool] then
      asked[#asked + 1] = pool .. ":*"
      pools[pool] = #asked
    end
  end
  asked[#asked + 1] = ""
  local scores, due = redis.call("ZMSCORE", full_lanes, unpack(asked)), {}
  for at, lane in ipairs(lanes) do
    local pool = pool_of(lane)
    if not scores[at] and pool and scores[pools[pool]] then
      -- A lane that has a turn may rest until then; it waits for the pool after that.
      if not redis.call("ZMSCORE", turns, lane)[1] then
        redis.pcall("ZADD", queue_prefix .. "pool:" .. pool, "NX", since, lane)
      end
    elseif not scores[at] then
      due[#due + 1] = since
      due[#due + 1] = lane
    end
  end
  if #due > 0 and redis.call("ZADD", turns, "NX", unpack(due)) > 0 then ring(scores[#asked]) end
end
