"""The loops of a server, one a file over one base."""
