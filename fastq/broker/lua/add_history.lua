--[[ add_history: add a server's counts to the history of a queue: by minute, by type, and by hour.
KEYS[1] history_minutes  asynq:{q}:history:{hour}
KEYS[2] history_hours    asynq:{q}:history:{day}
KEYS[3] processed_total  asynq:{q}:processed
KEYS[4] lost             asynq:{q}:lost:{day}
KEYS[5] active           asynq:{q}:active
ARGV[1] minute           of the hour
ARGV[2] hour             of the day
ARGV[3] minutes_until    unix seconds until which history_minutes is kept
ARGV[4] hours_until      unix seconds until which history_hours is kept
ARGV[5] max_types        types that history_minutes holds at most
ARGV[6] other            the type under which all further types are counted
ARGV[7] sums             counts of all types together: a letter and a number each
ARGV[8] step             the minute at which the present step began: a type has one record for each step
ARGV[9...] types         two values each: type, counts
builds  none
returns 1 added | 0 there is no such queue
asynq   none
]]
local history_minutes, history_hours = KEYS[1], KEYS[2]
local processed_total, lost, active = KEYS[3], KEYS[4], KEYS[5]
local minute, hour, minutes_until, hours_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local max_types, other, sums, step = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]

-- Whoever has counted a task left one of these keys: it is active, processed or lost. If none exists, the queue has
-- been deleted.
if redis.call("EXISTS", processed_total, lost, active) == 0 then return 0 end
-- These raise if a key has a wrong type, before anything is written.
local known = redis.call("HLEN", history_minutes)
redis.call("HLEN", history_hours)

-- A value has a record for each minute, step or hour: ";", its number, and the counts.
local function add(key, field, number, counts)
  local value = redis.call("HGET", key, field) or ""
  local from, to = string.find(value, ";" .. number .. "%a%w*")
  local record = from and string.sub(value, from, to) or ";" .. number
  for letter, count in string.gmatch(counts, "(%a)(%d+)") do
    local start, stop = string.find(record, letter .. "%d+")
    if start then
      local sum = string.format("%s%.0f", letter, string.sub(record, start + 1, stop) + count)
      record = string.sub(record, 1, start - 1) .. sum .. string.sub(record, stop + 1)
    else
      record = record .. letter .. count
    end
  end
  if from then
    value = string.sub(value, 1, from - 1) .. record .. string.sub(value, to + 1)
  else
    value = value .. record
  end
  return redis.call("HSET", key, field, value)
end

add(history_hours, "", hour, sums)
known = known + add(history_minutes, "", minute, sums)
for at = 9, #ARGV, 2 do
  local name = ARGV[at]
  -- One of the known fields holds the sums, not a type.
  if known > max_types and redis.call("HEXISTS", history_minutes, name) == 0 then name = other end
  known = known + add(history_minutes, name, step, ARGV[at + 1])
end
redis.call("EXPIREAT", history_minutes, minutes_until)
redis.call("EXPIREAT", history_hours, hours_until)
return 1
