"""In which order a group asks its queues, and for how much: as listed, or by their weights."""

from collections import Counter
from collections.abc import Iterable
from math import ceil

from windlass.core.bounds import ASK_QUEUES
from windlass.worker.options import Group

RECENT = 8
"""A queue has a share of the room if one of the last so many asks gave a job of it; see `asking.py`."""


class Shares:
    """Turns the weights of a group's queues into an order and a bound for each ask.

    Each queue has a clock that its jobs move by one over its weight, and the queue that is furthest behind
    heads the next ask. An ask empties its queues in order, so it asks for no more than one queue's share of
    the room; the next ask has another head. A queue that had nothing to give does not save up: it goes on
    where the others are.

    The room is shared by the queues that have work: those that gave a job lately. So one busy queue among
    twenty has all the room. At the start it is not known which these are, and each queue counts.
    """

    def __init__(self, group: Group) -> None:
        self._queues = group.queues
        self._weights = dict(zip(group.queues, group.weights, strict=False))
        self._clocks = dict.fromkeys(self._weights, 0.0)
        self._asks = 0
        """How many were answered."""
        self._gave = dict.fromkeys(self._weights, 0)
        """After how many asks each of them last gave a job."""
        self._empty = dict.fromkeys(self._weights, -1)
        """After how many asks each of them was last found empty."""
        self._page_at = 0

    def order(self) -> tuple[str, ...]:
        """The queues of the next ask."""
        if not self._weights:
            return self._page()
        order = sorted(self._queues, key=lambda queue: (self._clocks[queue], self._empty[queue]))
        if len(order) > ASK_QUEUES:
            # Those with work are always asked, the others in turns.
            busy = [queue for queue in order if self._is_busy(queue)][: ASK_QUEUES // 2]
            others = [queue for queue in order if queue not in busy][: ASK_QUEUES - len(busy)]
            order = [queue for queue in order if queue in busy or queue in others]
        return tuple(order)

    def bound(self, order: tuple[str, ...], room: int) -> int:
        """How many jobs to ask for at the most: the share of the first queue that may have some. One that was
        found empty a moment ago most likely still is.
        """
        if not self._weights:
            return room
        first = next((queue for queue in order if self._empty[queue] < self._asks), order[0])
        sharing = {first, *(queue for queue in self._queues if self._is_busy(queue))}
        return ceil(room * self._weights[first] / sum(self._weights[queue] for queue in sharing))

    def received(self, order: tuple[str, ...], queues: Iterable[str]) -> None:
        """What came of an ask: the queue of each job."""
        if not self._weights:
            return
        self._asks += 1
        counts = Counter([queue for queue in queues if queue in self._weights])
        empty = self._found_empty(order, counts)
        self._empty.update(dict.fromkeys(empty, self._asks))
        # If no queue gave a job, those that the ask had no place for are next.
        ahead = [clock for queue, clock in self._clocks.items() if queue in counts or queue not in order]
        for queue in empty:
            self._clocks[queue] = max(self._clocks[queue], min(ahead, default=0.0))
        for queue, count in counts.items():
            self._gave[queue] = self._asks
            self._clocks[queue] += count / self._weights[queue]

    def _is_busy(self, queue: str) -> bool:
        return self._asks - self._gave[queue] < RECENT

    @staticmethod
    def _found_empty(order: tuple[str, ...], counts: Counter[str]) -> list[str]:
        """Those that stood before the last queue that gave something, and gave nothing."""
        last = max((order.index(queue) for queue in counts), default=len(order))
        return [queue for queue in order[:last] if queue not in counts]

    def _page(self) -> tuple[str, ...]:
        """An ask names a hundred queues at the most: a longer list is gone round in turns."""
        if len(self._queues) <= ASK_QUEUES:
            return self._queues
        start, self._page_at = self._page_at, (self._page_at + ASK_QUEUES) % len(self._queues)
        return (self._queues[start:] + self._queues[:start])[:ASK_QUEUES]
