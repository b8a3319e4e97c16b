"""The worker layer: the code inside a child, between the pool's bytes and the user's handlers.

The pool loads ``runner``, which decodes a task, finds its handler, and reports its outcome. The main process imports
only ``report`` from here.
"""
