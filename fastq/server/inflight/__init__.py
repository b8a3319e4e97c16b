"""Tasks in flight: from their dequeue until their outcome is written."""
