"""Reloading while one develops: when a source file changes, the worker starts itself anew."""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from windlass.pace import MachinePace, Pace

EVERY = 1.0
SKIPPED = frozenset(("__pycache__", "node_modules", "venv", "site-packages"))


def sources(folder: Path) -> Mapping[str, int]:
    """When each Python file under a folder was changed; hidden folders and environments are left out."""
    return dict(_sources(str(folder)))


def _sources(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in SKIPPED:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat().st_mtime_ns
        except OSError:
            continue  # gone while we looked


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> str | None:
    """The first file that was changed, added or removed."""
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            return path
    return None


async def changed(pace: Pace, folder: Path) -> str:
    """Wait for a change. Returns the file that has changed."""
    before = sources(folder)
    while True:
        await pace.sleep(EVERY)
        after = sources(folder)
        path = difference(before, after)
        if path is not None:
            return path


def start_anew() -> NoReturn:
    """Become a new interpreter with the same command line."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line, once more


def start_anew_on_change() -> None:
    """Wait until the code that could not run was changed. Returns when that was interrupted."""
    try:
        asyncio.run(changed(MachinePace(), Path.cwd()))
    except KeyboardInterrupt:
        return
    start_anew()
