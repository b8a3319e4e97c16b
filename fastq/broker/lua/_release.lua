-- Takes tasks off active and lease. Sets moved, their ids, and taken, their indexes in named. If no task was taken off,
-- the script ends. Uses active, lease, side, named, guarded.
local outcomes, moved, taken, all = {}, {}, {}, true
for nth = 1, #named do
  local id, outcome = named[nth], 1
  if not guarded(nth) then
    outcome = -1
  elseif redis.call("LREM", active, side, id) == 0 then
    outcome = 0
  else
    taken[#taken + 1] = nth
    moved[#moved + 1] = id
  end
  if outcome ~= 1 then all = false end
  outcomes[nth] = outcome
end
if #moved == 0 then return outcomes end
redis.call("ZREM", lease, unpack(moved))
