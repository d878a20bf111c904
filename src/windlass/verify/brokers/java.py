"""Servers that run on Java."""

import shutil
from pathlib import Path
from typing import Final

from windlass.verify.brokers.places import Missing

OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""It starts in seconds and stays small; what it could do in an hour does not matter here."""


def java(what: str) -> str:
    """The program; `Missing` if the machine has none. `what` needs it."""
    found = shutil.which("java")
    if found is None:
        raise Missing(
            f"{what} needs a Java of version 17 or later: install one, such as openjdk-17-jre-headless"
        )
    return found


def jars(folder: Path, what: str, name: str) -> Path:
    """The folder with the jars of a server; `Missing` if it is not there. `name` is that of its fetcher."""
    if not folder.is_dir():
        raise Missing(f"{what} is not in {folder}: make servers ARGS={name}")
    return folder
