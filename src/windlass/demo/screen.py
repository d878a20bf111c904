"""What the demo shows: a live picture on a terminal, lines of text elsewhere."""

import os
import sys
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from windlass.core.state import State
from windlass.demo.jobs import JOBS, KINDS, MAILS
from windlass.demo.look import Look

RECENT = 7
_WAITING = (State.BLOCKED, State.SCHEDULED, State.READY)
_COLOURS = {"waiting": "cyan", "running": "yellow", "done": "green", "dead": "red"}


class Screen(Protocol):
    """Shows how things are."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def show(self, look: Look, news: Sequence[str]) -> None:
        """Show a moment, and what has happened since the one before."""
        ...


def is_live() -> bool:
    """Whether there is a terminal on which a picture can change."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def screen(to: Console) -> Screen:
    """The screen for what there is."""
    return Picture(to) if is_live() else Lines(to)


class Lines:
    """A line each second, and one for each thing that happens."""

    def __init__(self, to: Console) -> None:
        self._to = to
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, look: Look, news: Sequence[str]) -> None:
        """Print what is new."""
        for said in news:
            self._to.print(f"{look.seconds:5.1f} s  {said}", markup=False)
        if look.seconds >= self._next:
            self._next = look.seconds + 1
            counts = "  ".join(f"{name} {count:>3}" for name, count in _summary(look.states).items())
            self._to.print(f"{look.seconds:5.1f} s  {counts}", markup=False)


class Picture:
    """Everything at a glance, several times a second."""

    def __init__(self, to: Console) -> None:
        self._live = Live(console=to, refresh_per_second=8, transient=False)
        self._recent: deque[str] = deque(maxlen=RECENT)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, look: Look, news: Sequence[str]) -> None:
        """Draw it anew."""
        self._recent.extend(f"{look.seconds:5.1f} s  {said}" for said in news)
        recent = list(self._recent) + [""] * (RECENT - len(self._recent))
        self._live.update(
            Group(
                _headline(look),
                _kinds(look),
                _tenants(look),
                Text("\n".join(recent), style="dim", no_wrap=True, overflow="ellipsis"),
            )
        )


def _summary(states: dict[State, int]) -> dict[str, int]:
    return {
        "waiting": sum(states[state] for state in _WAITING),
        "running": states[State.RUNNING],
        "done": states[State.DONE],
        "dead": states[State.DEAD],
    }


def _headline(look: Look) -> Table:
    row = Table.grid(padding=(0, 2))
    counts = [Text(f"{name} {count}", style=_COLOURS[name]) for name, count in _summary(look.states).items()]
    row.add_row(
        Text(f"{look.seconds:4.1f} s", style="bold"), ProgressBar(JOBS, look.finished, width=30), *counts
    )
    return row


def _kinds(look: Look) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("kind")
    for name, colour in _COLOURS.items():
        table.add_column(name, justify="right", style=colour, min_width=7)
    table.add_column("what to look for", style="dim", no_wrap=True, overflow="ellipsis")
    nothing = dict.fromkeys(State, 0)
    for kind in KINDS:
        counts = _summary(look.kinds.get(kind.name, nothing)).values()
        table.add_row(kind.name, *(str(count or "·") for count in counts), kind.about)
    return table


def _tenants(look: Look) -> Table:
    row = Table.grid(padding=(0, 2))
    for tenant, count in MAILS.items():
        done = look.tenants[tenant]
        row.add_row(
            Text(f"mails of {tenant}"), ProgressBar(count, done, width=30), Text(f"{done} of {count}")
        )
    return row
