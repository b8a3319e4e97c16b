"""The pool."""
