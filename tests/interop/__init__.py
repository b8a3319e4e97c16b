"""Tests against the real Go asynq; see README.md."""
