"""The pool in the main process: who gets which task, time limits, deaths. It runs no user code."""
