"""What each contender runs: its tasks, and a producer. Most live in an environment with their library only."""
