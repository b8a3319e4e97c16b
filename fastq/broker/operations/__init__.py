"""The operations of producers, servers and schedulers on Redis, and flows of several operations."""
