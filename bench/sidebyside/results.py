"""What was measured, turn by turn.

Machines and disks are fast for a while and slow for a while. In a turn all are measured one after the other,
so a ratio is taken within it, and the median of those is shown: what was slow was so for both. The ratio of
two medians may be that of a slow turn to a fast one.
"""

import statistics
from collections.abc import Iterable, Mapping

from sidebyside.measures import Figures

Key = tuple[str, str, int, str]
"""Store, measure, payload, peer."""
Turn = tuple[int, int]
"""The number of a round, and that of a turn in it."""
Medians = Mapping[Key, Figures]


class Results:
    """The figures of each turn: one that failed is missing, and compared with nothing."""

    def __init__(self, turns: Mapping[Key, Mapping[Turn, Figures]] | None = None) -> None:
        self._turns: dict[Key, dict[Turn, Figures]] = {key: dict(some) for key, some in (turns or {}).items()}

    def add(self, key: Key, turn: Turn, figures: Figures) -> None:
        """Keep the figures of a turn."""
        self._turns.setdefault(key, {})[turn] = figures

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def medians(self) -> dict[Key, Figures]:
        """Of each figure over all turns."""
        return {key: _median(turns.values()) for key, turns in self._turns.items()}

    def rounds(self) -> "list[Results]":
        """The figures of each round by themselves."""
        numbers = sorted({number for turns in self._turns.values() for number, _ in turns})
        return [self._of(number) for number in numbers]

    def _of(self, number: int) -> "Results":
        kept = {
            key: {turn: figures for turn, figures in turns.items() if turn[0] == number}
            for key, turns in self._turns.items()
        }
        return Results({key: turns for key, turns in kept.items() if turns})

    def ratio(self, own: tuple[Key, str], other: tuple[Key, str]) -> float | None:
        """The one in units of the other, each a key and the name of a figure; None if no turn has both."""
        mine, others = self._by_turn(*own), self._by_turn(*other)
        if own[0][1] != other[0][1]:  # of two measures, which have their turns apart
            mine, others = _by_round(mine), _by_round(others)
        ratios = [mine[turn] / others[turn] for turn in mine.keys() & others.keys() if others[turn]]
        return statistics.median(ratios) if ratios else None

    def _by_turn(self, key: Key, figure: str) -> dict[Turn, float]:
        turns = self._turns.get(key, {}).items()
        return {turn: figures[figure] for turn, figures in turns if figure in figures}

    def said(self) -> str:
        """How many turns the medians are of: a peer that failed once has one less."""
        counts = sorted({len(turns) for turns in self._turns.values()})
        said = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"
        return f"{said} {'turn' if counts == [1] else 'turns'}"


def _by_round(turns: Mapping[Turn, float]) -> dict[Turn, float]:
    rounds = {number for number, _ in turns}
    return {
        (number, 0): statistics.median(value for turn, value in turns.items() if turn[0] == number)
        for number in rounds
    }


def _median(turns: Iterable[Figures]) -> Figures:
    some = list(turns)
    return {
        name: statistics.median(one[name] for one in some if name in one)
        for name in some[0]
        if name != "began"
    }
