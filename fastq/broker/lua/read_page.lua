--[[ read_page: read the next tasks of a list (the oldest first) or set (the lowest score first), behind those passed.
KEYS[1] source       asynq:{q}:scheduled or another list or set of ids
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] count        ids to read at most
ARGV[3] max_bytes    bytes of tasks to read at most; the first task that goes beyond it is the last one read
ARGV[4] place        number of ids that were passed
ARGV[5] with_locks   1 to look for how long tasks hold the unique locks that their hashes name, else ""
ARGV[6...] passed    two values each: some ids that were passed, the last one first, and their scores, "" in a list
builds  task_prefix .. id, and lock keys asynq:{q}:unique:..., same hash tag
returns list: the place at which the page begins, then id, score or "", milliseconds of the lock (-1 forever, -2 not
  held or not looked for), list of fields and values for each task
asynq   none
cost    4 us a task of 150 bytes
]]
local source = KEYS[1]
local task_prefix, count, max_bytes, place = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local with_locks = ARGV[5]
local is_list = redis.call("TYPE", source).ok == "list"
local last, last_score

-- Between two pages, other clients remove and add ids, so the index of the passed ids changes.
local function place_in_list(known)
  local first = math.max(0, place - 2000)
  local near = redis.call("LRANGE", source, -(place + 500), -(first + 1))
  for at, id in ipairs(near) do
    if known[id] then return first + #near - at + 1 end
  end
  local from_oldest = redis.call("LPOS", source, last, "RANK", -1, "MAXLEN", 50000)
  -- If the last passed id is not found, workers have taken it and all older ids: the next page begins at the old end.
  return from_oldest and redis.call("LLEN", source) - from_oldest or 0
end

local function place_in_set(known)
  for _, pair in ipairs(known) do
    local score = redis.call("ZSCORE", source, pair[1])
    if score and tonumber(score) == tonumber(pair[2]) then return redis.call("ZRANK", source, pair[1]) + 1 end
  end
  return redis.call("ZCOUNT", source, "-inf", "(" .. last_score)
end

local function lock_ms(id, fields)
  for at = 1, #fields, 2 do
    local lock = fields[at] == "unique_key" and fields[at + 1]
    -- The named lock may be any key; GET raises if the key is not a string.
    if lock then return redis.pcall("GET", lock) == id and redis.call("PTTL", lock) or -2 end
  end
  return -2
end

local by_id, pairs_of = {}, {}
for at = 6, #ARGV, 2 do
  local id, score = ARGV[at], ARGV[at + 1]
  if not last then last, last_score = id, score end
  by_id[id] = true
  pairs_of[#pairs_of + 1] = {id, score}
end
local start, flat = 0, {}
if is_list then
  if last then start = place_in_list(by_id) end
  local ids = redis.call("LRANGE", source, -(start + count), -(start + 1))
  for at = #ids, 1, -1 do
    flat[#flat + 1] = ids[at]
    flat[#flat + 1] = ""
  end
else
  if last then start = place_in_set(pairs_of) end
  flat = redis.call("ZRANGE", source, start, start + count - 1, "WITHSCORES")
end

local reply, bytes = {start}, 0
for at = 1, #flat, 2 do
  -- A key that is not a hash is no task: its error must not keep the others from being read.
  local fields = redis.pcall("HGETALL", task_prefix .. flat[at])
  if fields.err then fields = {} end
  reply[#reply + 1] = flat[at]
  reply[#reply + 1] = flat[at + 1]
  reply[#reply + 1] = with_locks == "1" and lock_ms(flat[at], fields) or -2
  reply[#reply + 1] = fields
  for _, text in ipairs(fields) do bytes = bytes + #text end
  if bytes >= max_bytes then break end
end
return reply
