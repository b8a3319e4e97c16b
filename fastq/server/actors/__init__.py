"""The loops of a server, one per file over one base."""
