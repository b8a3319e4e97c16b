open_lanes(order)
