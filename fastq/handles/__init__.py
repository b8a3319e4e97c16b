"""Waiting for tasks: handles, and how a client learns that its tasks have ended."""
