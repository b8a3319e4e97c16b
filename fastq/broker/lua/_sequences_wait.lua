-- A sequence waits for its task that is to be tried again: the place stays. Uses order, orders_of.
local keeps = {}
for lane, its in pairs(orders_of(order)) do keeps[lane] = its == "strict" end
