-- Returns whether a task may be touched, by its place among named, the ids of the call. Uses owner, expired_at, lease,
-- named.
local scores = (owner ~= "" or expired_at ~= "") and redis.call("ZMSCORE", lease, unpack(named))
local function guarded(nth)
  if not scores then return true end
  local score = tonumber(scores[nth] or nil)
  if not score then return false end
  if owner ~= "" then return score % 1 == tonumber(owner) end
  return score <= tonumber(expired_at)
end
