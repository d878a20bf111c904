"""Decisions without I/O: no clock, no threads, no event loop. Adapters only carry them out."""
