-- All places are given back.
local keeps = {}
