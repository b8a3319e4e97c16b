"""The worker layer: what runs inside a child process, between the pool's bytes and the user's handlers.

``runner`` is what the pool loads; it decodes a task, finds its handler, and reports what came of it. The main process
imports only ``report`` from here.
"""
