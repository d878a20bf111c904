"""The one service behind command line, API and dashboard: reads (`insight.py`) and writes (`operate.py`)."""
