"""In which order a group asks its queues: as listed, or by their weights."""

from windlass.core.bounds import ASK_QUEUES
from windlass.worker.options import Group


class Shares:
    """Turns the weights of a group's queues into an order for each ask.

    Smooth weighted round robin: with weights 5, 2, 1 each eight asks begin five times with the first queue,
    twice with the second, once with the third, well mixed; the others follow by their credit. An ask empties
    its queues in order, so a queue gets slots that those before it leave free.
    """

    def __init__(self, group: Group) -> None:
        self._queues = group.queues
        self._weights = group.weights
        self._credit = [0] * len(group.queues)
        self._turn = 0

    def order(self) -> tuple[str, ...]:
        """The queues of the next ask."""
        if not self._weights:
            return self._page()
        for place, weight in enumerate(self._weights):
            self._credit[place] += weight
        ranked = sorted(range(len(self._queues)), key=lambda place: -self._credit[place])
        self._credit[ranked[0]] -= sum(self._weights)
        return tuple(self._queues[place] for place in ranked[:ASK_QUEUES])

    def _page(self) -> tuple[str, ...]:
        """An ask names a hundred queues at the most: a longer list is gone round in turns."""
        if len(self._queues) <= ASK_QUEUES:
            return self._queues
        start, self._turn = self._turn, (self._turn + ASK_QUEUES) % len(self._queues)
        return (self._queues[start:] + self._queues[:start])[:ASK_QUEUES]
