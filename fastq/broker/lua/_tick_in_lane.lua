-- Makes the group of a tick's task a lane. If the task waits there, it gets its place, and the lane a turn. Uses
-- outcomes, state, moment, id, group, group_name, rank_word, open_lanes, orders_of, rank, give_turns.
if outcomes == 1 then
  local lanes = {group_name}
  open_lanes(lanes)
  if state == "aggregating" then
    -- Also after an earlier sending of this call: by now the task may have run.
    local score = rank_word == "0" and moment or rank(moment, rank_word, orders_of(lanes)[group_name])
    redis.call("ZADD", group, "XX", score, id)
    give_turns(lanes)
  end
end
