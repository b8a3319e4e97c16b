"""The doctor: looks for what is wrong with a Redis, its servers and what is in its queues, and repairs what is safe."""
