"""The worker layer: the messages about tasks between main process and children, and the code that runs tasks there.

The pool loads a runner (``child/``), which decodes a task, finds its handler, and reports its outcome. The main process
imports ``shared/`` only.
"""
