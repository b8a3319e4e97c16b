"""The settings of a server, and what all its parts ask: times, outages, commands."""
