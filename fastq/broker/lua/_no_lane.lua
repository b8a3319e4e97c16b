-- A group that is a lane is not aggregated.
if #only_lanes({name}) > 0 then return 0 end
