--[[ archive_tasks: move some of the tasks of a state to archived, and keep archived within its bounds.
KEYS[1] source       asynq:{q}:scheduled or another list or set of ids
KEYS[2] lease        asynq:{q}:lease
KEYS[3] groups       asynq:{q}:groups
KEYS[4] archived     asynq:{q}:archived
KEYS[5] archive_rule asynq:{q}:archive_rule
KEYS[6] paused       asynq:{q}:paused
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        the state of the tasks in the source
ARGV[3] group        the group's name if the source is a group, else ""
ARGV[4] count        ids to take at most
ARGV[5] last         the newest id of a list, or greatest score, to take; "" for no bound
ARGV[6] now            unix seconds
ARGV[7] expire_before  unix seconds; tasks archived until then are deleted
ARGV[8] max_size       tasks that the archive keeps at most
ARGV[9] max_bytes      bytes to read of messages, of tasks with a lock only; the first task beyond it is the last
builds  task_prefix .. id, queue_prefix .. "h:" .. its group, and lock keys asynq:{q}:unique:..., same hash tag
returns list: ids taken, tasks moved
asynq   archiveAllCmd, archiveAllPendingCmd, archiveAllAggregatingCmd (all tasks in one call; the archive is trimmed
  without the tasks' hashes)
]]
local source, lease, groups, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local archive_rule, paused = KEYS[5], KEYS[6]
local task_prefix, state, group, count, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local now, expire_before, max_size, max_bytes = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])

-- include: take_some

-- include: drop_place

-- include: field_at

-- include: unlock_early

redis.call("ZCARD", archived)
local taken, founds, moved, bytes = {}, {}, {}, 0
for nth, id in ipairs(ids_to_take()) do
  local found = redis.pcall("HMGET", task_prefix .. id, "state", "unique_key", "group")
  taken[nth], founds[nth] = id, found
  if found[2] then bytes = bytes + redis.call("HSTRLEN", task_prefix .. id, "msg") end
  if bytes >= max_bytes then break end
end
-- The writes that free memory come first: a Redis that is out of memory then lets the later writes pass.
take_off(#taken)
for nth, id in ipairs(taken) do
  local task, found = task_prefix .. id, founds[nth]
  if is_here(id, found[1]) then
    redis.call("HSET", task, "state", "archived")
    drop_place(found[3], id)
    unlock_early(task, id, found[2])
    moved[#moved + 1] = now
    moved[#moved + 1] = id
  end
end
if #moved > 0 then redis.call("ZADD", archived, unpack(moved)) end

-- include: trim_archive
return {#taken, #moved / 2}
