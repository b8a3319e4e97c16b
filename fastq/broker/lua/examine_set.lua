--[[ examine_set: examine a stretch of a sorted set for ids without task, or out of place.
KEYS[1] source       asynq:{q}:scheduled or another sorted set of ids
KEYS[2] groups       asynq:{q}:groups
ARGV[1] task_prefix  asynq:{q}:t:
ARGV[2] state        the state of the tasks in the source
ARGV[3] group        the group's name if the source is a group, else ""
ARGV[4] cursor       ZSCAN's: 0 at first, then the one returned, until that is 0
ARGV[5] count        ids to look at, about
ARGV[6] repair       1 drops the ids that have no task, 0 changes nothing
builds  task_prefix .. id, same hash tag
returns list: cursor, ids looked at, ids dropped, then id, what it is: none (without task), undecodable (fastq archived
  it, since nobody could read its message), or its task's state
asynq   none (such ids stay forever)
]]
local source, groups = KEYS[1], KEYS[2]
local task_prefix, state, group, cursor, count, repair = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- include: has_message

if repair == "1" then -- a check without repair needs no right to write
-- rights
end

-- The type is the first field of a message. Big messages are skipped, since reading them would take long.
local function is_undecodable(task)
  if state ~= "archived" or redis.call("HSTRLEN", task, "msg") > 65536 then return false end
  return string.sub(redis.call("HGET", task, "msg"), 1, 19) == "\10\17fastq:undecodable"
end

local found = redis.call("ZSCAN", source, cursor, "COUNT", count)
local reply, dangling = {found[1], #found[2] / 2, 0}, {}
for at = 1, #found[2], 2 do
  local id = found[2][at]
  local task, what = task_prefix .. id, nil
  if not has_message(task) then
    what = "none"
    dangling[#dangling + 1] = id
  else
    local its_state = redis.call("HGET", task, "state") or ""
    if its_state ~= state then
      what = its_state
    elseif is_undecodable(task) then
      what = "undecodable"
    end
  end
  if what then
    reply[#reply + 1] = id
    reply[#reply + 1] = what
  end
end
if repair == "1" and #dangling > 0 then
  reply[3] = redis.call("ZREM", source, unpack(dangling))
  if group ~= "" and redis.call("EXISTS", source) == 0 then redis.call("SREM", groups, group) end
end
return reply
