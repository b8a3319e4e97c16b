"""The worker layer: what main process and children say of tasks to each other, and the code that runs them in a child.

The pool loads a runner (``child/``), which decodes a task, finds its handler, and reports its outcome. The main process
imports ``shared/`` only.
"""
