-- Returns whether the nth task of the call may be touched. Uses owner, expired_at, lease, and named: the ids of the
-- call.
local scores
if owner ~= "" or expired_at ~= "" then
  scores = redis.call("ZMSCORE", lease, unpack(named))
else
  redis.call("ZCARD", lease) -- raises if the key has a wrong type, as ZMSCORE does
end
local mine, judged = tonumber(owner), {}
local function may_end(score)
  if not score or owner ~= "" and score % 1 ~= mine then return false end
  return expired_at == "" or score <= tonumber(expired_at)
end
local function guarded(nth)
  if not scores then return true end
  local text = scores[nth]
  if not text then return false end
  -- Tasks that were taken together have the same score. It is parsed once, because parsing takes as long as an HSET.
  if judged[text] == nil then judged[text] = may_end(tonumber(text)) end
  return judged[text]
end
