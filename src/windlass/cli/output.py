"""What commands print: tables on a terminal, aligned text in a pipe, JSON lines for programs."""

import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from windlass.cli.failure import CannotPrint, UsageError
from windlass.cli.text import one_line

T = TypeVar("T")

ON_A_TERMINAL = 50
"""Rows that a list shows on a terminal without --limit; programs get all."""
LEAST_WRAPPED = 14
"""The least width of a column whose text may be wrapped."""
_CHUNK = 200
"""Rows whose widths are measured together, so that memory does not grow with the length of a list."""

STYLES: Mapping[str, str] = {
    "ready": "cyan",
    "running": "blue",
    "done": "green",
    "alive": "green",
    "ok": "green",
    "dead": "red",
    "problem": "bold red",
    "stopped": "bold red",
    "failing": "red",
    "unread": "yellow",
    "warning": "yellow",
    "paused": "yellow",
    "ended": "dim",
    "cancelled": "dim",
}

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table."""

    title: str
    text: Callable[[T], str]
    right: bool = False
    wraps: bool = False
    """Whether its text may be wrapped or cut on a narrow terminal."""
    spare: int = 0
    """On a narrow terminal the columns with the highest number are left out first; 0 always stays."""


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def say(text: str) -> None:
    """Print a line."""
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotPrint(error) from None


def say_aside(text: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(text + "\n")


def say_json(value: object) -> None:
    """Print an object as one line of JSON."""
    say(_encode(value).decode())


async def show(
    rows: AsyncIterator[T],
    columns: Sequence[Column[T]],
    *,
    json: bool,
    nothing: str,
    limit: int | None = None,
) -> None:
    """Print rows as they arrive, as JSON lines or a table; without rows, print `nothing` to stderr."""
    most = limit if limit is not None or json or not is_terminal() else ON_A_TERMINAL
    table = _Rich(columns) if is_terminal() and not json else _Plain(columns)
    count = 0
    waiting: list[list[str]] = []
    async for row in rows:
        if count == most:
            if limit is None:
                say_aside(f"only the first {count} are shown; use --limit for more")
            break
        count += 1
        if json:
            say_json(row)
            continue
        waiting.append([one_line(column.text(row)) for column in columns])
        if len(waiting) == _CHUNK:
            table.print(waiting)
            waiting = []
    if waiting:
        table.print(waiting)
    if not count and not json:
        say_aside(nothing)


async def each(rows: Sequence[T]) -> AsyncIterator[T]:
    """Turn a list of rows into the async iterator that `show` takes."""
    for row in rows:
        yield row


class _Plain(Generic[T]):
    """Aligned text without colours and borders: for pipes, files and grep."""

    def __init__(self, columns: Sequence[Column[T]]) -> None:
        self._columns = columns
        self._widths = [len(column.title) for column in columns]
        self._begun = False

    def print(self, rows: list[list[str]]) -> None:
        self._widths = [
            max(width, *(len(row[index]) for row in rows)) for index, width in enumerate(self._widths)
        ]
        if not self._begun:
            self._begun = True
            rows = [[column.title.upper() for column in self._columns], *rows]
        for row in rows:
            cells = [
                cell.rjust(width) if column.right else cell.ljust(width)
                for cell, width, column in zip(row, self._widths, self._columns, strict=True)
            ]
            say("  ".join(cells).rstrip())


class _Rich(Generic[T]):
    """A table on a terminal."""

    def __init__(self, columns: Sequence[Column[T]]) -> None:
        self._columns = columns
        self._shown: list[int] | None = None
        self._begun = False

    def print(self, rows: list[list[str]]) -> None:
        from rich.console import Console  # noqa: PLC0415 - a pipe needs none of it
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        console = Console(highlight=False)
        if self._shown is None:  # the same for all that follows
            self._shown = fitting(self._columns, rows, console.width)
        table = Table(box=None, pad_edge=False, show_header=not self._begun, header_style="bold")
        self._begun = True
        for index in self._shown:
            column = self._columns[index]
            table.add_column(
                column.title, justify="right" if column.right else "left", no_wrap=not column.wraps
            )
        for row in rows:
            cells = [row[index] for index in self._shown]
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
        console.print(table)


def fitting(columns: Sequence[Column[T]], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the columns that fit a terminal of this width."""

    def needs(index: int) -> int:
        widest = max(len(columns[index].title), *(len(row[index]) for row in rows))
        return min(widest, LEAST_WRAPPED) if columns[index].wraps else widest

    shown = list(range(len(columns)))
    while sum(needs(index) + 2 for index in shown) > width + 2:
        spare = max(shown, key=lambda index: columns[index].spare)
        if not columns[spare].spare:
            break
        shown.remove(spare)
    return shown


def show_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line; leave out names without a value."""
    said = [(name, one_line(value)) for name, value in fields if value]
    width = max((len(name) for name, _ in said), default=0)
    if not is_terminal():
        for name, value in said:
            say(f"{name.ljust(width)}  {value}")
        return
    from rich.console import Console  # noqa: PLC0415 - a pipe needs none of it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for name, value in said:
        grid.add_row(Text(name, style="bold"), Text(value, style=STYLES.get(value, "")))
    Console(highlight=False).print(grid)


def confirm(question: str, *, yes: bool) -> bool:
    """Ask the user for a yes. Without a terminal to ask on, `--yes` is required."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{question}: there is no terminal to ask on; add --yes to confirm")
    return _answer(f"{question}? [y/N] ").casefold() in ("y", "yes")


def ask(question: str) -> str:
    """Ask the user for a line; empty without a terminal to ask on."""
    return _answer(f"{question}: ") if sys.stdin.isatty() else ""


def _answer(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    # The loop's own handler would only take note of a Ctrl-C, and wait on for the answer.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return sys.stdin.readline().strip()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def progress(what: str, total: int, *, shown: bool) -> Generator[Callable[[int], object]]:
    """Show a progress bar on a terminal's standard error; yields a function that moves it on."""
    if not shown or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console  # noqa: PLC0415 - a pipe needs none of it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
