"""Puts messages that were read into the store: as many at a time as one step takes, whole or not at all.

What the store refuses for good becomes dead letters, so that nothing holds up what comes behind it. A store
that is full, or away, refuses nothing for good: the messages stay where they are until it works again.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from windlass.bridges.dead_letters import LARGEST
from windlass.bridges.mapped import Mapped, Mapper
from windlass.bridges.message import Message
from windlass.core.job import GROUP_BYTES, GROUP_EDGES, GROUP_JOBS, NewJob, Receipt, Refusal, Status
from windlass.core.take import Source, Take, Taken, TakeStatus
from windlass.errors import StoreError


class Takes(Protocol):
    """What is needed of a broker."""

    async def take(self, take: Take) -> Taken:
        """See `windlass.broker.intake`."""
        ...


class StoreFull(StoreError):
    """The store takes no more jobs until there is room again."""


class Piece(msgspec.Struct, frozen=True):
    """Messages that are taken in one step, and what becomes of each."""

    messages: tuple[Message, ...]
    mapped: tuple[Mapped, ...]

    @property
    def jobs(self) -> list[NewJob]:
        """Of all messages."""
        return [job for each in self.mapped for job in each.jobs]

    @property
    def dead(self) -> int:
        """How many messages became dead letters."""
        return sum(each.error is not None for each in self.mapped)


class Taking:
    """Puts the messages of one intake into the store."""

    def __init__(self, broker: Takes, mapper: Mapper, declare: Callable[[], Awaitable[None]]) -> None:
        """`declare` tells the store of the queues once more, when it has lost them."""
        self._broker = broker
        self._mapper = mapper
        self._declare = declare

    def pieces(self, messages: Sequence[Message]) -> Iterator[Piece]:
        """Messages with their jobs, in pieces that the store takes in one step."""
        kept: list[tuple[Message, Mapped]] = []
        jobs = size = edges = 0
        for message in messages:
            mapped = self._mapper.map(message)
            # The larger of both: if the store refuses its jobs, they become a dead letter with its body.
            payloads = sum(len(job.payload) for job in mapped.jobs)
            more = max(payloads, min(len(message.body or b""), LARGEST)) if mapped.jobs else 0
            after = sum(len(job.after) for job in mapped.jobs)
            if kept and (
                jobs + len(mapped.jobs) > GROUP_JOBS
                or size + more > GROUP_BYTES
                or edges + after > GROUP_EDGES
            ):
                yield _piece(kept)
                kept, jobs, size, edges = [], 0, 0, 0
            kept.append((message, mapped))
            jobs, size, edges = jobs + len(mapped.jobs), size + more, edges + after
        if kept:
            yield _piece(kept)

    async def take(
        self, source: Source, expect: str | None, then: str | None, piece: Piece
    ) -> tuple[Taken, Piece]:
        """Take a piece: the answer, and the piece as it was taken at last, with more dead letters if the
        store refused some. `StoreFull`, `StoreError`: it was not taken, as far as is known.
        """
        declared = False
        while True:
            taken = await self._broker.take(_take(source, expect, then, piece))
            if taken.status is not TakeStatus.REFUSED:
                return taken, piece
            refused = _refused_for_good(taken.receipts)
            if not declared and any(why is Refusal.UNKNOWN_QUEUE for _, why in refused.values()):
                # A server without a file that was restarted has lost them. A queue that the message alone
                # names is refused once more.
                declared = True
                await self._declare()
                continue
            piece = self._buried(piece, refused)

    def _buried(self, piece: Piece, refused: dict[int, tuple[str, Refusal | None]]) -> Piece:
        mapped = list(piece.mapped)
        for number, (why, _) in refused.items():
            if mapped[number].error is not None:
                raise StoreError(f"a dead letter could not be kept: {why}")
            mapped[number] = self._mapper.unfit(piece.messages[number], why)
        return Piece(piece.messages, tuple(mapped))


def _piece(kept: Sequence[tuple[Message, Mapped]]) -> Piece:
    return Piece(tuple(message for message, _ in kept), tuple(mapped for _, mapped in kept))


def _take(source: Source, expect: str | None, then: str | None, piece: Piece) -> Take:
    dead = {
        job.id: mapped.error for mapped in piece.mapped if mapped.error is not None for job in mapped.jobs
    }
    groups = [mapped.jobs for mapped in piece.mapped]
    return Take(source=source, expect=expect, then=then, groups=groups, dead=dead)


def _refused_for_good(receipts: Sequence[Sequence[Receipt]]) -> dict[int, tuple[str, Refusal | None]]:
    """The messages whose jobs were refused, by number, and why; not those that fell with them."""
    guilty: dict[int, tuple[str, Refusal | None]] = {}
    for number, group in enumerate(receipts):
        for receipt in group:
            if receipt.status is not Status.REFUSED or receipt.refusal is Refusal.NEIGHBOUR:
                continue
            why = receipt.why or str(receipt.refusal)
            if receipt.refusal is Refusal.STORE_FULL:
                raise StoreFull(f"the store is full: {why}")
            guilty.setdefault(number, (why, receipt.refusal))
    if not guilty:
        raise StoreError("the store refused messages and did not say which")
    return guilty
