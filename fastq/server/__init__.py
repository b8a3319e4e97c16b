"""The server: an asyncio main process that fetches tasks, hands them to the pool, and writes their ends.

It runs no user code. Each job is done by a small actor in its own file (``actors/``); ``wiring/process`` wires them.
"""
