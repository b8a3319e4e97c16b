"""Processes of a server beside the pool's: hooks, aggregator, and the reload of the app."""
