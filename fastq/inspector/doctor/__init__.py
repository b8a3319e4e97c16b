"""The doctor: finds problems with a Redis, its servers and its queues, and makes the safe repairs."""
