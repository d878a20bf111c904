"""In which order a group asks its queues, and for how much: as listed, or by their weights."""

from collections import Counter
from collections.abc import Iterable
from math import ceil

from windlass.core.bounds import ASK_QUEUES
from windlass.worker.options import Group


class Shares:
    """Turns the weights of a group's queues into an order and a bound for each ask.

    Each queue has a clock that its jobs move by one over its weight, and the queue that is furthest behind
    heads the next ask. An ask empties its queues in order, so it asks for no more than the head's share of
    the room; the next ask has another head. A queue that had nothing to give does not save up: it goes on
    where the others are.
    """

    def __init__(self, group: Group) -> None:
        self._queues = group.queues
        self._weights = dict(zip(group.queues, group.weights, strict=False))
        self._clocks = dict.fromkeys(self._weights, 0.0)
        self._empty = dict.fromkeys(self._weights, 0)
        """When each of them was last found empty, by the turn."""
        self._turn = 0

    def order(self) -> tuple[str, ...]:
        """The queues of the next ask."""
        if not self._weights:
            return self._page()
        return tuple(
            sorted(self._queues, key=lambda queue: (self._clocks[queue], self._empty[queue]))[:ASK_QUEUES]
        )

    def bound(self, order: tuple[str, ...], room: int) -> int:
        """How many jobs to ask for at the most."""
        if not self._weights:
            return room
        return ceil(room * self._weights[order[0]] / sum(self._weights.values()))

    def received(self, order: tuple[str, ...], queues: Iterable[str]) -> None:
        """What came of an ask: the queue of each job."""
        if not self._weights:
            return
        counts = Counter(queues)
        givers = [self._clocks[queue] for queue in counts if queue in self._clocks]
        if not givers:
            # Those that an ask had no place for are next.
            self._turn += 1
            self._empty.update(dict.fromkeys(order, self._turn))
            others = [clock for queue, clock in self._clocks.items() if queue not in order]
            for queue in order:
                self._clocks[queue] = max(self._clocks[queue], min(others, default=0.0))
            return
        for queue in order:
            if queue in counts:
                break
            # It stood in front and had nothing.
            self._clocks[queue] = max(self._clocks[queue], min(givers))
        for queue, count in counts.items():
            if queue in self._clocks:
                self._clocks[queue] += count / self._weights[queue]

    def _page(self) -> tuple[str, ...]:
        """An ask names a hundred queues at the most: a longer list is gone round in turns."""
        if len(self._queues) <= ASK_QUEUES:
            return self._queues
        start, self._turn = self._turn, (self._turn + ASK_QUEUES) % len(self._queues)
        return (self._queues[start:] + self._queues[:start])[:ASK_QUEUES]
