"""How a server is seen from outside: metrics and probes over HTTP, and what it tells systemd."""
