-- Returns whether the nth task of the call may be touched. Uses owner, expired_at, lease, and named: the ids of the
-- call.
local scores
if owner ~= "" or expired_at ~= "" then
  scores = redis.call("ZMSCORE", lease, unpack(named))
else
  redis.call("ZCARD", lease) -- raises for a key of another type, as ZMSCORE does
end
local function guarded(nth)
  if not scores then return true end
  local score = tonumber(scores[nth] or nil)
  if not score then return false end
  if owner ~= "" and score % 1 ~= tonumber(owner) then return false end
  return expired_at == "" or score <= tonumber(expired_at)
end
