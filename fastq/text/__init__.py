"""Times, sizes and lanes as text for people, for the commands and the web UI."""
