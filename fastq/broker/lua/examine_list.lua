--[[ examine_list: examine a stretch of pending or active for ids without task, without lease, or out of place.
KEYS[1] source       asynq:{q}:pending or active
KEYS[2] lease        asynq:{q}:lease
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        the state of the tasks in the source
ARGV[3] start        index of the first id to look at, from the head
ARGV[4] count        ids to look at
ARGV[5] repair       1 drops the ids that have no task, 0 changes nothing
builds  task_prefix .. id, same hash tag
returns list: ids looked at, ids dropped, then id, what it is: none (without task), unleased, or its task's state
asynq   none (such ids stay forever)
]]
local source, lease = KEYS[1], KEYS[2]
local task_prefix, state, start, count, repair = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
-- include: has_message

if repair == "1" then -- a check without repair needs no right to write
-- rights
end

local ids = redis.call("LRANGE", source, start, start + count - 1)
local reply, dangling = {#ids, 0}, {}
for at, id in ipairs(ids) do
  local task, what = task_prefix .. id, nil
  if not has_message(task) then
    what = "none"
    dangling[#dangling + 1] = at
  else
    local its_state = redis.call("HGET", task, "state") or ""
    if its_state ~= state then
      what = its_state
    elseif state == "active" and not redis.call("ZSCORE", lease, id) then
      what = "unleased"
    end
  end
  if what then
    reply[#reply + 1] = id
    reply[#reply + 1] = what
  end
end
if repair == "1" and #dangling > 0 then
  for _, at in ipairs(dangling) do
    if state == "active" then redis.call("ZREM", lease, ids[at]) end
    redis.call("LSET", source, start + at - 1, "")
  end
  -- LSET has blanked the ids to drop, and no task's id is blank. The search starts at the nearer end, and stops at the
  -- last blank.
  local side = start * 2 > redis.call("LLEN", source) and -1 or 1
  reply[2] = redis.call("LREM", source, side * #dangling, "")
end
return reply
