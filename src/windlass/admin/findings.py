"""What an examination finds."""

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How bad it is. Only a problem makes `windlass doctor` fail."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    level: Level
    text: str
    fix: str = ""
