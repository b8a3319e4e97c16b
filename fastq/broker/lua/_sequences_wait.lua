-- A sequence (a lane in strict order) waits for a task to be retried, so it keeps the place. Uses order, orders_of.
local keeps = {}
for lane, its in pairs(orders_of(order)) do keeps[lane] = its == "strict" end
