-- Frees the places of tasks in their lanes and pools. Lanes that were full get a turn, and so do lanes that wait for a
-- full pool. Lanes in `keeps` keep their places. Uses ended, order, keeps.
local places = {}
for _, lane in ipairs(order) do
  if not keeps[lane] then places[#places + 1] = lane end
end
local own = #places
for _, lane in ipairs(order) do
  local pool = pool_of(lane)
  if pool then
    local name = pool .. ":*"
    if not ended[name] then
      ended[name] = {}
      places[#places + 1] = name
    end
    for _, id in ipairs(ended[lane]) do ended[name][#ended[name] + 1] = id end
  end
end
places[#places + 1] = ""
local was_full, freed = redis.call("ZMSCORE", full_lanes, unpack(places)), {}
for at, name in ipairs(places) do
  local removed = name == "" and 1 or redis.pcall("SREM", queue_prefix .. "h:" .. name, unpack(ended[name]))
  if was_full[at] and name == "" then
    redis.call("ZREM", full_lanes, name)
    ring()
  elseif was_full[at] and at <= own then
    redis.call("ZREM", full_lanes, name)
    freed[#freed + 1] = name
  elseif was_full[at] and type(removed) == "number" and removed > 0 then
    -- For each freed place one waiting lane gets a turn. Once no lane waits, the pool no longer counts as full.
    local waiting = queue_prefix .. "pool:" .. string.sub(name, 1, -3)
    local next_ones = redis.pcall("ZPOPMIN", waiting, removed)
    local due = {}
    for each = 1, #next_ones, 2 do
      due[#due + 1] = microseconds(now_us())
      due[#due + 1] = next_ones[each]
    end
    if #due > 0 and redis.call("ZADD", turns, "NX", unpack(due)) > 0 then ring(false) end
    if redis.call("EXISTS", waiting) == 0 then redis.call("ZREM", full_lanes, name) end
  end
end
give_turns(freed)
