"""The server: an asyncio main process that fetches tasks, hands them to the pool, and writes what came of them.

It runs no user code. Each job is a small actor (``actor``) in a file of its own; ``process`` wires them.
"""
