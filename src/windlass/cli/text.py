"""Text for terminals and pipes: control characters in jobs, lanes and errors never reach a terminal."""

import re
from datetime import UTC, datetime

# Escape sequences forge output and retitle windows; a lone carriage return overwrites what was printed.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile(r"\s*[\r\n]+\s*")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def safe(text: str) -> str:
    """Return the text with its control characters escaped, except line breaks and tabs."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def one_line(text: str) -> str:
    """Text in one line."""
    return safe(_BREAKS.sub(" ", text.strip())).replace("\t", " ")


def shortened(text: str, most: int) -> str:
    """Text in one line of at most this many characters."""
    line = one_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"


def age(seconds: float) -> str:
    """A short duration: "850ms", "12s", "3m05s", "4h20m", "2d03h"."""
    if seconds < 1:
        return f"{max(0, seconds) * 1_000:.0f}ms"
    whole = int(seconds)
    for index, (length, name) in enumerate(_UNITS):
        if whole >= length:
            if name == "s":
                return f"{whole}s"
            below, small = _UNITS[index + 1]
            return f"{whole // length}{name}{whole % length // below:02}{small}"
    raise AssertionError(seconds)


def since(at: datetime | None, now: datetime) -> str:
    """How long ago a time was; for a later time, "in" and how long until then."""
    if at is None:
        return ""
    passed = (now - at).total_seconds()
    return age(passed) if passed >= 0 else f"in {age(-passed)}"


def clock(at: datetime | None) -> str:
    """A time, in UTC, to the second."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def mebibytes(size: int) -> str:
    """A size in MiB."""
    return f"{size / (1024 * 1024):,.0f} MiB" if size else ""
