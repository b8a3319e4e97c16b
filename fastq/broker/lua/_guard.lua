-- Returns whether a task may be touched. Uses owner, expired_at, lease.
local function guarded(id)
  if owner == "" and expired_at == "" then return true end
  local score = tonumber(redis.call("ZSCORE", lease, id) or nil)
  if not score then return false end
  if owner ~= "" then return score % 1 == tonumber(owner) end
  return score <= tonumber(expired_at)
end
