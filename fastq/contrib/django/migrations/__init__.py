"""The migrations of the table of ``once``."""
