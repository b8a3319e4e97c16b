-- A sequence (a lane in strict order) waits for a task that will be retried, so the task keeps its place.
-- Uses order, orders_of.
local keeps = {}
for lane, its in pairs(orders_of(order)) do keeps[lane] = its == "strict" end
