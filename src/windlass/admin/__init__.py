"""The one service behind command line, API and dashboard: see `service.py`, and a file for each noun."""
