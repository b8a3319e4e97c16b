"""The version, and nothing else: pyproject.toml reads this file."""

__version__ = "0.1.0rc1"
