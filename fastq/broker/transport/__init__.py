"""Connections to Redis: URLs, Sentinel, Cluster, the blocking and the asyncio driver, and readable errors."""
