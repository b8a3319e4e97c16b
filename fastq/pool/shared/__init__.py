"""What both sides of the pool know: the memory, the records, the signals, the kinds of ends."""
