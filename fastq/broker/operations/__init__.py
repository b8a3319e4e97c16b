"""What producers, servers and schedulers ask of Redis: operations as data, and flows of several."""
