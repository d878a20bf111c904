"""Fetches kafka."""

from pathlib import Path


def fetch(folder: Path) -> None:
    """Put it into the folder, unless it is there."""
