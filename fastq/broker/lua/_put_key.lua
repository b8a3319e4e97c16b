-- Puts tasks whose ids are their keys. Uses task_prefix, now_ns, pending, scheduled, completed, archived, again.

-- These raise if a key has a wrong type, before anything is written. ZCARD would not do: producers have no right to it.
local known, soonest = earliest(scheduled), math.huge
redis.call("LLEN", pending)
redis.call("ZRANGE", completed, "0", "0")
redis.call("ZRANGE", archived, "0", "0")
local pushed, has_again = {}, redis.call("EXISTS", again) == 1
if has_again then redis.call("HGET", again, "") end

-- Drops the task of an id that waits for the end of a run, because a newer task is stored.
local function drop_again(id)
  if has_again then redis.call("HDEL", again, id) end
end

local function at_most(latest, run_at)
  return latest ~= "" and tonumber(run_at) > tonumber(latest) and latest or run_at
end

local function put_new(task, id, message, run_at, latest)
  if run_at == "" then
    redis.call("HSET", task, "msg", message, "state", "pending", "pending_since", now_ns)
    pushed[#pushed + 1] = id
    return
  end
  redis.call("HSET", task, "msg", message, "state", "scheduled")
  if latest ~= "" then redis.call("HSET", task, "latest", latest) end
  redis.call("ZADD", scheduled, run_at, id)
  soonest = math.min(soonest, run_at)
end

-- Splits a value of again: unix seconds to run at or "", latest unix seconds to run at or "", message.
local function read_again(kept)
  local _, last, run_at, latest = string.find(kept, "^(%d*):(%d*):")
  return run_at, latest, last and string.sub(kept, last + 1)
end

-- Stores a task in the hash `again`, in place of an older one, until the present run has ended.
local function put_behind(id, message, run_at, latest)
  local _, earlier = read_again(has_again and redis.call("HGET", again, id) or "")
  if earlier and earlier ~= "" then latest = earlier end
  if run_at ~= "" then run_at = at_most(latest, run_at) end
  redis.call("HSET", again, id, run_at .. ":" .. latest .. ":" .. message)
  has_again = true
end

local function postpone(task, id, run_at, latest)
  local stored = redis.call("HGET", task, "latest")
  if stored and tonumber(stored) then
    latest = stored
  elseif latest ~= "" then
    redis.call("HSET", task, "latest", latest)
  end
  if run_at == "" then run_at = string.sub(now_ns, 1, -10) end
  run_at = at_most(latest, run_at)
  redis.call("ZADD", scheduled, run_at, id)
  soonest = math.min(soonest, run_at)
  return 4, run_at
end

-- Returns a code and a fact or "": 1 put | 0 the id is of a task that cannot be replaced | 2 kept, its state |
-- 3 replaced, its state | 4 put off, unix seconds to run at | 5 it runs again after the present run.
local function put(id, message, policy, run_at, latest)
  local task = task_prefix .. id
  local state = redis.pcall("HGET", task, "state")
  if type(state) == "table" then return 0, "" end
  if state == "completed" or state == "archived" then
    redis.call("ZREM", state == "completed" and completed or archived, id)
    redis.call("DEL", task)
    state = false
  end
  if not state then
    put_new(task, id, message, run_at, latest)
    drop_again(id)
    return 1, ""
  end
  if policy == "keep" or (policy == "replace" and state == "active") then return 2, state end
  if state == "active" then
    put_behind(id, message, run_at, latest)
    return 5, ""
  end
  if state ~= "pending" and state ~= "scheduled" and state ~= "retry" then return 0, "" end
  redis.call("HSET", task, "msg", message)
  drop_again(id)
  local lane = state == "retry" and redis.call("HGET", task, "group")
  -- The replaced task may have kept its place in a sequence.
  local queue_prefix = lane and string.sub(task_prefix, 1, -3)
  if lane then redis.pcall("SREM", queue_prefix .. "h:" .. lane, id) end
  redis.call("HDEL", task, "group", "attempts", "lost") -- these fields were the replaced task's
  if state == "scheduled" and policy == "postpone" then return postpone(task, id, run_at, latest) end
  return 3, state
end

local function end_of_puts()
  if #pushed > 0 then redis.call("LPUSH", pending, unpack(pushed)) end
  if soonest < known then tell(soonest) end
end
