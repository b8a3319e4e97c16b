"""The processes of a server besides the pool's: for hooks and the aggregator; and the reload of the app."""
