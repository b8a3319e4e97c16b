"""The fault bench: servers on a real Redis under seeded faults, and what the handlers wrote down held against Redis."""
