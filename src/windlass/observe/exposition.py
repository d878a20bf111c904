"""Counters, gauges and histograms, and the text in which Prometheus reads them.

Not those of prometheus-client, for two reasons. The processes of a worker tell their supervisor what they
have counted since they last did (`Registry.take` and `add`), so that a process which is killed takes a second
of counts with it and nothing ever goes back; that library keeps a file for each process and value instead.
And the number of series is bounded here: names of tasks and queues come from outside.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

OTHER = "other"
"""What stands for names beyond the limit."""
_UNBOUNDED = frozenset(("queue", "task", "host", "intake", "partition", "relay"))
"""Labels whose values come from outside; all others are words of the project."""
SERIES = 500
"""Of one metric. A queue with a thousand tasks shows that many together."""

Labels = tuple[str, ...]
Kind = Literal["counter", "gauge", "histogram"]


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What a metric is called, and what it says."""

    name: str
    kind: Kind
    help: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()
    """Of a histogram: the upper bounds of its buckets, except for the last, which has none."""
    kept_elsewhere: bool = False
    """Of a counter: somebody else counts, and every process shows the same."""


class Spread(msgspec.Struct, array_like=True):
    """The values of one series of a histogram."""

    counts: list[int]
    """By bucket, not added up."""
    total: float = 0.0


class Taken(msgspec.Struct, array_like=True):
    """What was counted since the last time, by the name of the metric."""

    counts: dict[str, list[tuple[Labels, float]]] = {}
    spreads: dict[str, list[tuple[Labels, Spread]]] = {}

    def __bool__(self) -> bool:
        return bool(self.counts or self.spreads)


class _Family:
    """The series of one metric."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.values: dict[Labels, float] = {}
        self.spreads: dict[Labels, Spread] = {}

    def known(self, labels: Labels) -> Labels:
        """The series that these labels count in: beyond the limit it is one for all."""
        known = self.spreads if self.measure.bounds else self.values
        if labels in known or len(known) < SERIES:
            return labels
        return tuple(
            OTHER if name in _UNBOUNDED else value
            for name, value in zip(self.measure.labels, labels, strict=True)
        )

    def spread(self, labels: Labels) -> Spread:
        found = self.spreads.get(labels)
        if found is None:
            labels = self.known(labels)
            found = self.spreads.get(labels)
        if found is None:
            found = self.spreads[labels] = Spread([0] * (len(self.measure.bounds) + 1))
        return found


class Registry:
    """The metrics of one process; any thread may count."""

    def __init__(self, measures: Iterable[Measure]) -> None:
        self._families = {measure.name: _Family(measure) for measure in measures}
        self._lock = threading.Lock()

    def count(self, measure: Measure, labels: Labels = (), by: float = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._count(self._families[measure.name], labels, by)

    def set(self, measure: Measure, value: float, labels: Labels = ()) -> None:
        """Say what a gauge shows, or how far a counter is that somebody else keeps."""
        with self._lock:
            family = self._families[measure.name]
            family.values[family.known(labels)] = value

    def replace(self, measure: Measure, values: Mapping[Labels, float]) -> None:
        """Say all that a gauge shows. The largest are named if there are too many."""
        with self._lock:
            family = self._families[measure.name]
            family.values = {}
            for labels in sorted(values, key=lambda labels: (-values[labels], labels)):
                self._count(family, labels, values[labels])

    def raise_to(self, measure: Measure, values: Mapping[Labels, float]) -> None:
        """Say how far the series of a counter are that somebody else keeps. Those beyond the limit are added
        up, and none goes back.
        """
        with self._lock:
            family = self._families[measure.name]
            sums: dict[Labels, float] = {}
            for labels, value in values.items():
                if value:
                    known = family.known(labels)
                    sums[known] = sums.get(known, 0) + value
                    family.values.setdefault(known, 0)
            for labels, value in sums.items():
                family.values[labels] = max(value, family.values[labels])

    def spread(self, measure: Measure, value: float, labels: Labels = ()) -> None:
        """Add a value to a histogram."""
        self.spread_all(measure, ((labels, value),))

    def spread_all(self, measure: Measure, values: Iterable[tuple[Labels, float]]) -> None:
        """Add many."""
        bounds = measure.bounds
        with self._lock:
            family = self._families[measure.name]
            for labels, value in values:
                spread = family.spread(labels)
                spread.counts[bisect_left(bounds, value)] += 1
                spread.total += value

    # --- between processes ----------------------------------------------------------------------------------

    def take(self) -> Taken:
        """What was counted since the last time; counting starts anew."""
        taken = Taken({}, {})
        with self._lock:
            for name, family in self._families.items():
                if family.measure.kind == "counter" and family.values:
                    taken.counts[name], family.values = list(family.values.items()), {}
                elif family.spreads:
                    taken.spreads[name], family.spreads = list(family.spreads.items()), {}
        return taken

    def copied(self) -> Taken:
        """What this process has counted so far."""
        with self._lock:
            families = [family for family in self._families.values() if not family.measure.kept_elsewhere]
            return Taken(
                {
                    family.measure.name: list(family.values.items())
                    for family in families
                    if family.values and family.measure.kind == "counter"
                },
                {
                    family.measure.name: [
                        (labels, Spread(list(spread.counts), spread.total))
                        for labels, spread in family.spreads.items()
                    ]
                    for family in families
                    if family.spreads
                },
            )

    def twin(self) -> "Registry":
        """Another one that shows the same, to which others' counts can be added."""
        twin = Registry(self.measures)
        twin.add(self.copied())
        with self._lock:
            for name, family in self._families.items():
                if family.measure.kept_elsewhere or family.measure.kind == "gauge":
                    twin._families[name].values = dict(family.values)
        return twin

    def add(self, taken: Taken) -> None:
        """Add what another process has counted. What it has and this one does not know is left out."""
        with self._lock:
            for name, counts in taken.counts.items():
                if family := self._families.get(name):
                    for labels, value in counts:
                        self._count(family, labels, value)
            for name, spreads in taken.spreads.items():
                if family := self._families.get(name):
                    for labels, more in spreads:
                        _add(family.spread(labels), more)

    def _count(self, family: _Family, labels: Labels, by: float) -> None:
        if labels not in family.values:
            labels = family.known(labels)
        family.values[labels] = family.values.get(labels, 0) + by

    # --- the text -------------------------------------------------------------------------------------------

    @property
    def measures(self) -> Sequence[Measure]:
        """What it counts."""
        return [family.measure for family in self._families.values()]

    def lines(self, measure: Measure, constant: Mapping[str, str]) -> list[str]:
        """The series of one metric; `constant` labels go with each."""
        fixed = [f'{name}="{escaped(value)}"' for name, value in constant.items()]
        with self._lock:
            return list(_lines(self._families[measure.name], fixed))


def exposed(parts: Sequence[tuple[Mapping[str, str], Registry]]) -> str:
    """Everything, in Prometheus's text format: registries of the same metrics, each with labels of its own.
    What belongs to one metric stands together.
    """
    lines: list[str] = []
    for measure in parts[0][1].measures:
        series = [line for constant, registry in parts for line in registry.lines(measure, constant)]
        if series:
            lines += [
                f"# HELP {measure.name} {measure.help}",
                f"# TYPE {measure.name} {measure.kind}",
                *series,
            ]
    return "\n".join((*lines, ""))


def escaped(text: str) -> str:
    """A label's value."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _add(spread: Spread, more: Spread) -> None:
    if len(spread.counts) == len(more.counts):
        spread.counts = [one + other for one, other in zip(spread.counts, more.counts, strict=True)]
        spread.total += more.total


def _lines(family: _Family, fixed: Sequence[str]) -> Iterable[str]:
    measure = family.measure
    for labels, value in sorted(family.values.items()):
        yield f"{measure.name}{_braced(_pairs(measure, labels, fixed))} {_number(value)}"
    for labels, spread in sorted(family.spreads.items()):
        pairs = _pairs(measure, labels, fixed)
        reached = 0
        for bound, count in zip((*measure.bounds, None), spread.counts, strict=True):
            reached += count
            upper = "+Inf" if bound is None else _number(bound)
            below = _braced([*pairs, f'le="{upper}"'])
            yield f"{measure.name}_bucket{below} {reached}"
        yield f"{measure.name}_sum{_braced(pairs)} {_number(spread.total)}"
        yield f"{measure.name}_count{_braced(pairs)} {reached}"


def _pairs(measure: Measure, labels: Labels, fixed: Sequence[str]) -> list[str]:
    own = [f'{name}="{escaped(value)}"' for name, value in zip(measure.labels, labels, strict=True)]
    return [*fixed, *own]


def _braced(pairs: Sequence[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
