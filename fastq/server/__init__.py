"""The server: an asyncio main process that fetches tasks, hands them to the pool, and writes their ends.

It runs no user code. Each job is a small actor (``actor``) in its own file; ``process`` wires them.
"""
