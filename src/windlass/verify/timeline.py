"""What happened when, in seconds from the beginning: for the picture in the report."""

from collections import Counter
from pathlib import Path

import msgspec

from windlass.verify import history

BINS = 240
"""Points of a curve at the most."""


class Bar(msgspec.Struct):
    """A fault, from its beginning to its end."""

    kind: str
    target: str
    begin: float
    end: float


class Timeline(msgspec.Struct, kw_only=True):
    """Curves and bars."""

    seconds: float
    step: float
    """Seconds of one point."""
    accepted: list[float]
    """Jobs a second."""
    completed: list[float]
    """Runs that ended well, a second."""
    backlog: list[tuple[float, int]]
    """Jobs that have not finished."""
    bars: list[Bar]
    phases: list[tuple[float, str]]


class _Gathering:
    """One pass over a history."""

    def __init__(self) -> None:
        self.accepted: Counter[int] = Counter()
        self.completed: Counter[int] = Counter()
        self.backlog: list[tuple[int, int]] = []
        self.open: dict[int, Bar] = {}
        self.bars: list[Bar] = []
        self.phases: list[tuple[int, str]] = []
        self.runs = 0

    def take(self, event: history.Event) -> None:
        second = event.at // 1_000_000
        match event:
            case history.Enqueued():
                self.accepted[second] += len(event.receipts)
            case history.Start():
                self.runs += 1
            case history.End(how="ok"):
                self.completed[second] += 1
            case history.Counts():
                ended = sum(event.states.get(state, 0) for state in ("done", "dead", "cancelled"))
                self.backlog.append((event.at, sum(event.states.values()) - ended))
            case history.Phase():
                self.phases.append((event.at, event.name))
            case history.Nemesis(action="begin"):
                self.open[event.number] = bar = Bar(event.kind, event.target, event.at, event.at)
                self.bars.append(bar)
            case history.Nemesis():
                if event.number in self.open:
                    self.open.pop(event.number).end = event.at
            case _:
                pass


def draw_up(folder: Path) -> tuple[Timeline, int]:
    """The timeline of a history, and how many runs were started."""
    gathered, first, last = _Gathering(), None, 0
    for line in history.read(folder):
        event = line.event
        if isinstance(event, history.Final | history.Finished):
            continue  # read after the run
        first = event.at if first is None else first
        last = max(last, event.at)
        gathered.take(event)
    first = first or 0
    seconds = max(1.0, (last - first) / 1e6)
    step = max(1, int(seconds // BINS) + 1)

    def curve(counts: Counter[int]) -> list[float]:
        points = [0.0] * (int(seconds) // step + 1)
        for second, count in counts.items():
            points[min(len(points) - 1, max(0, (second - first // 1_000_000) // step))] += count / step
        return [round(point, 1) for point in points]

    def since(at: float) -> float:
        return round((at - first) / 1e6, 2)

    for bar in gathered.bars:
        bar.begin, bar.end = since(bar.begin), since(bar.end)
    every = len(gathered.backlog) // (2 * BINS) + 1
    return (
        Timeline(
            seconds=round(seconds, 1),
            step=step,
            accepted=curve(gathered.accepted),
            completed=curve(gathered.completed),
            backlog=[(since(at), count) for at, count in gathered.backlog[::every]],
            bars=gathered.bars,
            phases=[(since(at), name) for at, name in gathered.phases],
        ),
        gathered.runs,
    )
