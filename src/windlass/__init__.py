"""Windlass, a distributed task queue for Python."""

__version__ = "0.1.0.dev0"
