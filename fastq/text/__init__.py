"""Times, sizes and places as people read them, for the commands and the web UI."""
