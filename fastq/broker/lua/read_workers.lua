--[[ read_workers: read the tasks that a server runs, with the first bytes of their payloads and types.
KEYS[1] workers      asynq:workers:{host:pid:id}
ARGV[1] max_bytes    bytes of infos at most; the first that goes beyond it is the last one read
ARGV[2] most         bytes of a payload at most
ARGV[3] most_of_all  bytes of all payloads at most
ARGV[4] count        tasks that the server runs, 0 in the first call
ARGV[5...] ids       task ids, none in the first call
builds  none
returns list: tasks that the server runs, how many infos follow, the infos, the ids that were not read
asynq   none (reads them all with HVALS, with whole payloads)
cost    2 us a task; 0.5 ms a MB that is cut off
]]
local workers = KEYS[1]
local max_bytes, most, most_of_all, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local most_of_a_type = 1000

-- include: field_at
-- include: cut_field

local ids = {}
for at = 5, #ARGV do ids[#ids + 1] = ARGV[at] end
if count == 0 then
  ids = redis.call("HKEYS", workers)
  count = #ids
end
local most_of = {[42] = most_of_a_type, [50] = math.min(most, math.floor(most_of_all / math.max(count, 1)))}

-- Returns a WorkerInfo whose type (tag 42) and payload (tag 50) are cut.
local function head_of(info)
  local parts, kept, at = {}, 1, 1
  while at <= #info do
    local tag, start, stop = field_at(info, at)
    -- A broken message stays broken when cut.
    if not stop then return string.sub(info, 1, most_of_a_type) .. "\7" end
    if most_of[tag] and stop - start > most_of[tag] then
      parts[#parts + 1] = string.sub(info, kept, at - 1)
      parts[#parts + 1] = cut_field(info, at, start, most_of[tag], tag == 42)
      kept = stop
    end
    at = stop
  end
  parts[#parts + 1] = string.sub(info, kept)
  return table.concat(parts)
end

local reply, left, bytes, infos = {count, 0}, {}, 0, 0
for _, id in ipairs(ids) do
  local info = bytes < max_bytes and redis.call("HGET", workers, id)
  if bytes >= max_bytes then
    left[#left + 1] = id
  elseif info then
    -- Bytes that are cut cost time, too: an eighth of the time for sending them.
    bytes = bytes + #info / 8
    info = head_of(info)
    bytes = bytes + #info
    infos = infos + 1
    reply[#reply + 1] = info
  end
end
reply[2] = infos
for _, id in ipairs(left) do reply[#reply + 1] = id end
return reply
