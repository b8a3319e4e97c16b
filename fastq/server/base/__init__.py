"""The settings of a server, and what all its parts use: times, outages, commands."""
