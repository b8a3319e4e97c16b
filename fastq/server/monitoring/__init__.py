"""How a server is seen from outside: metrics and probes over HTTP, and messages to systemd."""
