--[[ take: lease tasks of a queue with lanes: from pending, and from the lanes in turn, within their limits.
KEYS[1] pending        asynq:{q}:pending
KEYS[2] active         asynq:{q}:active
KEYS[3] lease          asynq:{q}:lease
KEYS[4] paused         asynq:{q}:paused
KEYS[5] groups         asynq:{q}:groups
KEYS[6] limits         asynq:{q}:limits
KEYS[7] turns          asynq:{q}:turns
KEYS[8] full_lanes     asynq:{q}:full
KEYS[9] rates          asynq:{q}:rates
KEYS[10] bell          asynq:{q}:bell
ARGV[1] task_prefix    asynq:{q}:t:
ARGV[2] count          tasks at most, 1 to 500
ARGV[3] max_bytes      bytes of messages; the message that exceeds them is the last one taken
ARGV[4] lease_score    unix seconds at which the leases end, plus the owner's mark
ARGV[5] look_again     microseconds after which a full lane, pool or queue is looked at again
builds  task_prefix .. id, queue_prefix .. "g:" .. lane, queue_prefix .. "h:" .. a lane or pool,
  queue_prefix .. "pool:" .. pool, same hash tag
returns -1 paused | -2 the queue has no rules any more | list: number of ids without task (dropped), unix nanoseconds
  since when the first and the last id of pending were there ("" if not known), microseconds until a lane is due ("" if
  none waits for its time), 1 if the queue itself has no place left else 0, a list of the places (from 1) of tasks with
  a rate, then id, message, id, message, ...
asynq   none
]]
local pending, active, lease, paused, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local limits, turns, full_lanes, rates, bell = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local task_prefix, count, max_bytes, lease_score = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local look_again = tonumber(ARGV[5])
local MOST_LANES, MOST_LOOKS, MOST_LOOKED_AT, NEVER = 100, 50, 1000, math.huge
local MOST_IN_LISTPACK, WORTH_A_SKIP_LIST, TOO_LONG = 128, 16, string.rep("\255", 65)

-- One EXISTS in place of three: while all lanes are full, the queue is asked in vain again and again.
local is_quiet = redis.call("EXISTS", paused, pending, bell) == 0
if not is_quiet and redis.call("EXISTS", paused) == 1 then return -1 end
local has_pending = is_quiet and 0 or redis.call("LLEN", pending)
-- include: pools
-- include: lanes

local common = redis.call("HMGET", limits, "", "*")
if not common[1] and not common[2] and redis.call("HLEN", limits) == 0 then return -2 end
local now, had_bell = now_us(), not is_quiet and redis.call("EXISTS", bell) == 1
-- Numbers are passed as text, because Redis would convert them anew in each call.
local function first(of) return redis.call("ZRANGE", of, "0", "0", "WITHSCORES") end
local first_turn, first_full = first(turns), first(full_lanes)

-- Returns after how many microseconds a lane is due, given the first entries of turns and full. If a lane is ready now,
-- this rings the bell, on which idle servers wait. The reply has the time of a lane that is due later.
local function next_due(turn, look, visited, is_full)
  local next_turn, next_look = tonumber(turn[2] or nil) or NEVER, tonumber(look[2] or nil) or NEVER
  if is_full or next_turn > now + visited then
    if had_bell then redis.call("DEL", bell) end
  elseif not had_bell then
    redis.call("LPUSH", bell, "1")
  end
  if is_full then next_turn = NEVER end
  -- Calls that come for other reasons look at full lanes, too. For such a look alone, a server is woken at most once a
  -- second.
  local due = math.min(next_turn - now, math.max(1000000, next_look - now))
  return due < NEVER and microseconds(math.max(0, due)) or ""
end
local function is_due(one) return one[2] and tonumber(one[2]) <= now end
-- A queue whose lanes are full or wait for their time is asked often, so the call ends early here. If the queue has a
-- rule of its own, it goes on: the leases must be counted.
if has_pending == 0 and not common[1] and not is_due(first_turn) and not is_due(first_full) then
  return {0, "", "", next_due(first_turn, first_full, 0, false), 0, {}}
end
-- Numbers repeat, and formatting one takes longer than a table lookup.
local texts = {}
local function text_of(number)
  texts[number] = texts[number] or microseconds(number)
  return texts[number]
end
-- rights
-- (Rights are asked for here, not first: asking takes longer than a whole call that ends above, and such a call writes
-- at most once.)

-- These raise if a key has a wrong type, before anything is taken off and cannot be stored.
redis.call("LLEN", active)
redis.call("SCARD", groups)
redis.call("HGET", rates, "")
local leased = redis.call("ZCARD", lease)

-- A level is a lane or a pool, with the places and tokens that its rule leaves free. Without a rule it is open.

local parsed = {} -- by text: many lanes have the same rule
local function parse(rule)
  local found = parsed[rule]
  if not found then
    local most, interval, burst, weight, more = string.match(rule, "^(%d+):(%d+):(%d+):(%d+)(.*)$")
    found = {
      most = tonumber(most) or 0, interval = tonumber(interval) or 0, burst = math.max(1, tonumber(burst) or 1),
      weight = math.max(1, tonumber(weight) or 1), is_paused = string.sub(more, -7) == ":paused",
      order = string.match(more, "^:(%l+)"),
    }
    parsed[rule] = found
  end
  return found
end

-- Returns whether a task without a lease keeps its place in its sequence: it does while it has yet to run again. A
-- task that is back in its lane is moved to the front there; it needs no place. The task that has replaced it by key is
-- in no lane.
local function keeps_place(lane, id)
  local found = redis.pcall("HMGET", task_prefix .. id, "state", "group")
  local state = found[2] == lane and found[1]
  if state == "aggregating" then redis.pcall("ZADD", queue_prefix .. "g:" .. lane, "XX", 0, id) end
  return state == "retry" or state == "scheduled" or state == "pending" or state == "active"
end

local looks, looked_at = 0, 0
-- Frees the places of tasks that have no lease any more: nobody runs them.
local function look(level)
  looks = looks + 1
  -- Of a large set only a part is read. The clock chooses the cursor of the part, so that every part is read sooner or
  -- later.
  local cursor = level.most > 200 and now % 65536 or "0"
  local ids = redis.pcall("SSCAN", level.held, cursor, "COUNT", "400")[2] or {}
  looked_at = looked_at + #ids
  if #ids == 0 then return end
  local scores, ended = redis.call("ZMSCORE", lease, unpack(ids, 1, math.min(#ids, 1000))), {}
  for at, id in ipairs(ids) do
    local is_free = at <= #scores and not scores[at]
    if is_free and not (level.order == "strict" and keeps_place(level.name, id)) then ended[#ended + 1] = id end
  end
  if #ended > 0 then level.free = level.free + redis.call("SREM", level.held, unpack(ended)) end
end

local function level_of(name, rule, arrival)
  local level = {name = name, free = NEVER, tokens = NEVER, weight = 1}
  if not rule then return level end
  local found = parse(rule)
  level.weight, level.is_paused, level.most = found.weight, found.is_paused, found.most
  level.order = found.order
  if level.is_paused then level.free = 0 end
  if found.most > 0 then
    level.held = queue_prefix .. "h:" .. name
    local taken = redis.pcall("SCARD", level.held)
    level.free = math.min(level.free, type(taken) == "number" and found.most - taken or 0)
    local may_look = looks < MOST_LOOKS and looked_at < MOST_LOOKED_AT
    if level.free <= 0 and not level.is_paused and may_look then look(level) end
  end
  if found.interval > 0 then
    local interval, burst = found.interval, found.burst
    level.interval, level.burst = interval, burst
    level.arrival = math.max(tonumber(arrival or 0) or 0, now)
    -- Only an earlier rule can have left so late an arrival. The present rule begins with one token.
    if level.arrival > now + burst * interval then level.arrival = now + (burst - 1) * interval end
    level.tokens = math.floor((level.burst * level.interval - (level.arrival - now)) / level.interval)
  end
  return level
end
local function is_open(level) return level.free > 0 and level.tokens > 0 end
-- Returns when to look at a closed level again: at its next token, later if it is full, much later while paused.
local function again_at(level)
  if level.is_paused then return now + 12 * look_again end
  if level.free <= 0 then return now + look_again end
  return level.arrival - (level.burst - 1) * level.interval
end

local pools, met = {}, {} -- pools by name; names whose rules have been read
-- Reads the rules of lanes, and of pools whose rules have not been read.
local function levels_of(names, more)
  local asked, new_pools = {unpack(names)}, {}
  local function meet(pool)
    if not met[pool] then
      met[pool] = true
      new_pools[#new_pools + 1] = pool
      asked[#asked + 1] = pool .. ":*"
    end
  end
  for _, pool in ipairs(more) do meet(pool) end
  for _, name in ipairs(names) do
    local pool = pool_of(name)
    if pool then meet(pool) end
  end
  local rules, rated, place = redis.call("HMGET", limits, unpack(asked)), {}, {}
  for at, name in ipairs(asked) do
    if at <= #names then rules[at] = rules[at] or common[2] end
    if rules[at] and parse(rules[at]).interval > 0 then
      rated[#rated + 1] = name
      place[at] = #rated
    end
  end
  local arrivals = #rated > 0 and redis.call("HMGET", rates, unpack(rated)) or {}
  local function level(at) return level_of(asked[at], rules[at], place[at] and arrivals[place[at]]) end
  -- A pool of `more` counts even without a rule: it may have had one, and lanes may still wait for it.
  for nth, pool in ipairs(new_pools) do
    local at = #names + nth
    if rules[at] or nth <= #more then pools[pool] = level(at) end
  end
  local lanes = {}
  for at, name in ipairs(names) do
    lanes[at] = level(at)
    lanes[at].key, lanes[at].pool = queue_prefix .. "g:" .. name, pools[pool_of(name) or ""]
  end
  return lanes
end

local reply = {0, "", "", "", 0, {}}
local taken, leases, bytes, left = {}, {}, 0, count
local own = common[1] and parse(common[1]).most or 0
if own > 0 then left = math.min(left, own - leased) end

local function lease_task(id, was_pending, is_rated)
  local task = task_prefix .. id
  -- The batch is off its list already, so an error here, for a key that is not a hash, would lose it.
  local message = redis.pcall("HGET", task, "msg")
  if type(message) ~= "string" then
    reply[1] = reply[1] + 1
    return false
  end
  redis.call("HSET", task, "state", "active")
  if was_pending then redis.call("HDEL", task, "pending_since") end
  taken[#taken + 1] = id
  leases[#leases + 1] = lease_score
  leases[#leases + 1] = id
  reply[#reply + 1] = id
  reply[#reply + 1] = message
  if is_rated then reply[6][#reply[6] + 1] = #taken end
  bytes = bytes + #message
  left = left - 1
  if bytes >= max_bytes then left = 0 end
  return true
end

local function pending_since(id)
  local since = redis.pcall("HGET", task_prefix .. id, "pending_since")
  return type(since) == "string" and since or ""
end
local function take_pending(most)
  if most <= 0 or has_pending == 0 then return end
  -- The pop comes first: it frees memory, so that a Redis without memory lets later writes pass.
  local ids = redis.call("RPOP", pending, most) or {}
  has_pending = has_pending - #ids
  if #ids == 0 then return end
  if reply[2] == "" then reply[2] = pending_since(ids[1]) end
  reply[3] = #ids > 1 and pending_since(ids[#ids]) or reply[2]
  local back = {}
  for at, id in ipairs(ids) do
    if left > 0 then lease_task(id, true) else table.insert(back, 1, ids[at]) end
  end
  if #back > 0 then redis.call("RPUSH", pending, unpack(back)) end
end

local function spend(level, ids)
  if level.held then redis.pcall("SADD", level.held, unpack(ids)) end
  level.free = level.free - #ids
  if level.arrival then
    level.tokens = level.tokens - #ids
    level.arrival = level.arrival + #ids * level.interval
    level.is_spent = true
  end
end

local function serve(lane, share)
  local pool = lane.pool
  local most = math.min(share, left, lane.free, lane.tokens)
  if pool then most = math.min(most, pool.free, pool.tokens) end
  if most <= 0 then return false end
  local is_lifo, ids, all = lane.order == "lifo", {}, true
  local shown = text_of(most)
  local popped = is_lifo and redis.pcall("ZPOPMAX", lane.key, shown) or redis.pcall("ZPOPMIN", lane.key, shown)
  if popped.err then
    lane.free = 0
    return false
  end
  local is_rated = lane.arrival or pool and pool.arrival
  for at = 1, #popped, 2 do
    if left <= 0 then
      redis.call("ZADD", lane.key, popped[at + 1], popped[at])
      all = false
    elseif lease_task(popped[at], false, is_rated) then
      ids[#ids + 1] = popped[at]
    end
  end
  if #ids > 0 then
    spend(lane, ids)
    if pool then spend(pool, ids) end
    lane.got = (lane.got or 0) + #ids
  end
  lane.is_empty = all and #popped < 2 * most
  return #popped > 0
end

local gone, turn, closed, off_turns, waiting, spent = {}, {}, {}, {}, {}, {}
local function push(list, ...)
  for _, each in ipairs({...}) do list[#list + 1] = each end
end
local function wait_for_pool(pool, name)
  waiting[pool] = waiting[pool] or {}
  push(waiting[pool], text_of(now), name)
end

-- Notes whether a lane is empty, is closed or goes on after its turn; `at` orders lanes that go on.
local function settle(lane, at, share)
  if lane.is_spent then push(spent, lane.name, text_of(lane.arrival)) end
  if lane.is_empty or redis.call("EXISTS", lane.key) == 0 then
    push(gone, lane.name)
  elseif lane.free <= 0 then
    push(closed, text_of(again_at(lane)), lane.name)
    push(off_turns, lane.name)
  elseif lane.tokens <= 0 then
    push(turn, text_of(again_at(lane)), lane.name)
  elseif lane.pool and not is_open(lane.pool) then
    wait_for_pool(lane.pool, lane.name)
    push(off_turns, lane.name)
  elseif lane.got and lane.got < share and now % share >= lane.got then
    -- The call had no room for the lane's whole weight. So the lane keeps its turn with a chance as large as the
    -- missing part of the weight; the clock draws.
    if lane.is_new then push(turn, text_of(now), lane.name) end
  elseif lane.got or lane.is_new then
    push(turn, text_of(now + at), lane.name)
  end
end

local function serve_all(names, is_new)
  local lanes = levels_of(names, {})
  local ready = {}
  for _, lane in ipairs(lanes) do
    lane.is_new = is_new
    if is_open(lane) then ready[#ready + 1] = lane end
  end
  while left > 0 and #ready > 0 do
    local weight, has_moved, still = 0, false, {}
    for _, lane in ipairs(ready) do weight = weight + lane.weight end
    local quantum = math.max(1, math.floor(left / weight))
    for _, lane in ipairs(ready) do
      has_moved = serve(lane, quantum * lane.weight) or has_moved
      if not lane.is_empty and is_open(lane) and (not lane.pool or is_open(lane.pool)) then still[#still + 1] = lane end
    end
    if not has_moved then break end
    ready = still
  end
  for at, lane in ipairs(lanes) do settle(lane, at, lane.weight) end
end

-- Full lanes and pools whose time has come are looked at again: somebody else may have ended their tasks.
local due_again = redis.call("ZRANGE", full_lanes, "-inf", text_of(now), "BYSCORE", "LIMIT", "0", MOST_LOOKS)
local visited, again, pools_again = 0, {}, {}
-- The first write frees memory, so that a Redis without memory lets later writes pass.
redis.call("ZREM", full_lanes, "", unpack(due_again))
for _, name in ipairs(due_again) do
  if string.sub(name, -2) == ":*" then
    pools_again[#pools_again + 1] = pool_of(name)
  elseif name ~= "" then
    again[#again + 1] = name
  end
end
if #pools_again > 0 then levels_of({}, pools_again) end

if left > 0 then
  local is_ready = #again > 0 or #redis.call("ZRANGE", turns, "-inf", text_of(now), "BYSCORE", "LIMIT", "0", "1") > 0
  local all = left
  take_pending(is_ready and math.ceil(all / 2) or all)
  if #again > 0 then serve_all(again, true) end
  visited = #again
  local seen = 0
  while left > 0 and visited < MOST_LANES do
    local step = math.min(math.max(8, math.ceil(count / 8)), MOST_LANES - visited)
    local names = redis.call("ZRANGE", turns, "-inf", text_of(now), "BYSCORE", "LIMIT", seen, step)
    if #names > 0 then serve_all(names) end
    seen, visited = seen + #names, visited + #names
    if #names < step then break end
  end
  take_pending(left)
elseif #again > 0 then
  for _, name in ipairs(again) do push(closed, text_of(now + look_again), name) end
end

if #gone > 0 then
  redis.call("ZREM", turns, unpack(gone))
  redis.call("SREM", groups, unpack(gone))
end
if #off_turns > 0 then redis.call("ZREM", turns, unpack(off_turns)) end
for pool, lanes in pairs(waiting) do
  redis.pcall("ZADD", queue_prefix .. "pool:" .. pool_of(pool.name), "NX", unpack(lanes))
end
-- For each free place and token of a pool, one of its waiting lanes gets a turn. If others remain, the pool is looked
-- at again: now if it is still open, else when it is due.
for name, pool in pairs(pools) do
  local queue = queue_prefix .. "pool:" .. name
  if pool.is_spent then push(spent, pool.name, text_of(pool.arrival)) end
  if is_open(pool) then
    local next_ones = redis.pcall("ZPOPMIN", queue, math.min(pool.free, pool.tokens, MOST_LOOKS))
    for at = 1, #next_ones, 2 do push(turn, text_of(now), next_ones[at]) end
  end
  if redis.call("EXISTS", queue) == 0 then
    push(off_turns, pool.name)
    redis.call("ZREM", full_lanes, pool.name)
  else
    push(closed, text_of(is_open(pool) and now or again_at(pool)), pool.name)
  end
end
if #turn > 0 then redis.call("ZADD", turns, unpack(turn)) end
if #spent > 0 then redis.call("HSET", rates, unpack(spent)) end
if #taken > 0 then
  redis.call("LPUSH", active, unpack(taken))
  -- See dequeue: a listpack of leases would be parsed as text for each one added.
  local is_listpack = leased <= MOST_IN_LISTPACK and leased + #taken >= WORTH_A_SKIP_LIST
  if is_listpack then redis.call("ZADD", lease, lease_score, TOO_LONG) end
  redis.call("ZADD", lease, unpack(leases))
  if is_listpack then redis.call("ZREM", lease, TOO_LONG) end
end
if own > 0 and leased + #taken >= own then
  push(closed, text_of(now + look_again), "")
  reply[5] = 1
end
if #closed > 0 then redis.call("ZADD", full_lanes, unpack(closed)) end

reply[4] = next_due(first(turns), first(full_lanes), visited, reply[5] == 1)
return reply
