"""Output to a terminal, and Ctrl-C."""
