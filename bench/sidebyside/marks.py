"""What workers note in a folder, read from outside: how many jobs have started, and how late pings were."""

import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

_MARK = struct.Struct("<Qdd")
_LATENCY = struct.Struct("<d")


class Starts(NamedTuple):
    """The starts of all processes together."""

    count: int
    first: float
    last: float


def starts(folder: Path) -> Starts:
    """How many jobs have started, and when the first and the last."""
    marks = []
    for path in folder.glob("*.starts"):
        text = path.read_bytes()
        if len(text) == _MARK.size and text[:8] != bytes(8):
            marks.append(_MARK.unpack(text))
    if not marks:
        return Starts(0, 0.0, 0.0)
    counts, firsts, lasts = zip(*marks, strict=True)
    return Starts(sum(counts), min(firsts), max(lasts))


def latencies(folder: Path) -> list[float]:
    """How late each ping was, in seconds, in order of size."""
    found = []
    for path in folder.glob("*.latencies"):
        text = path.read_bytes()
        found += [late for (late,) in _LATENCY.iter_unpack(text[: len(text) // 8 * 8])]
    return sorted(found)


def forget_pings(folder: Path) -> None:
    """Start to count them anew."""
    for path in folder.glob("*.latencies"):
        os.truncate(path, 0)


def await_starts(folder: Path, count: int, within: float) -> Starts:
    """Wait until so many jobs have started, as long as one starts every now and then."""
    last, end = -1, 0.0
    while (seen := starts(folder)).count < count:
        if seen.count > last:
            last, end = seen.count, time.monotonic() + within
        if time.monotonic() > end:
            raise TimeoutError(
                f"{seen.count} of {count} jobs had started, none in {within:.0f} s{_log(folder)}"
            )
        time.sleep(0.005)
    return seen


def _log(folder: Path) -> str:
    log = folder / "log"
    return f"; the workers say:\n{log.read_text(errors='replace')[-1500:]}" if log.exists() else ""


def await_pings(folder: Path, count: int, within: float) -> list[float]:
    """Wait until so many pings were noted."""
    end = time.monotonic() + within
    while len(seen := latencies(folder)) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"{len(seen)} of {count} pings were noted after {within:.0f} s{_log(folder)}")
        time.sleep(0.02)
    return seen
