"""What is shown while a run goes on: a live picture on a terminal, a line now and then elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

EVERY = 10.0
"""Seconds between two lines where there is no terminal."""
RECENT = 6


class Progress:
    """Goes to standard error: the report alone is the answer."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False)
        live = not quiet and sys.stderr.isatty() and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, refresh_per_second=4, transient=True) if live else None
        self._begun = time.monotonic()
        self._line_at = 0.0
        self._phase = "starting"
        self._recent: deque[str] = deque(maxlen=RECENT)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def phase(self, name: str) -> None:
        """Another part begins."""
        self._phase = name
        self._say(f"{name}")

    def look(self, states: dict[str, int] | None, accepted: int, news: Sequence[str]) -> None:
        """How things are, and what was done since the last time."""
        for said in news:
            self._say(said)
        now = time.monotonic()
        counts = "the store does not answer" if states is None else _counts(states)
        if self._live is not None:
            self._live.update(self._picture(counts, accepted))
        elif now - self._line_at >= EVERY:
            self._line_at = now
            self._say(f"{accepted:,} accepted, {counts}")

    def _picture(self, counts: str, accepted: int) -> Group:
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"{time.monotonic() - self._begun:5.0f} s", style="bold"),
            Text(self._phase, style="cyan"),
            Text(f"{accepted:,} accepted"),
            Text(counts),
        )
        recent = [*self._recent, *[""] * (RECENT - len(self._recent))]
        return Group(head, Text("\n".join(recent), style="dim", no_wrap=True, overflow="ellipsis"))

    def _say(self, text: str) -> None:
        line = f"{time.monotonic() - self._begun:6.1f} s  {text}"
        self._recent.append(line)
        if self._live is None and not self._quiet:
            self._console.print(line, markup=False, soft_wrap=True)


def _counts(states: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in states.items() if count) or "nothing yet"
