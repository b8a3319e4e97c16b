-- The scripts run inside Redis: Lua 5.1, and these names besides.
std = "lua51"
read_globals = { "KEYS", "ARGV", "redis", "cjson", "cmsgpack", "bit", "struct" }
max_line_length = 120
