"""Brokers that break a promise about offsets, each one; see `saboteurs.py`."""

from typing import Any

from tests.broker.saboteurs import Saboteur, change

from windlass.core.job import Receipt, Status
from windlass.core.outcome import Error
from windlass.core.take import TakeStatus


class MovesWithoutItsJobs(Saboteur):
    """Moves an offset, and loses the last of the jobs that came with it."""

    notices = "an accepted job is there|an edge leads to a job"

    async def take(self, take: Any) -> Any:
        groups = [list(group) for group in take.groups]
        if not groups or len(groups[-1]) < 2 or groups[-1][-1].id in take.dead:
            return await self.inner.take(take)
        lost = groups[-1].pop()
        answer = await self.inner.take(change(take, groups=groups))
        if not answer.receipts:
            return answer
        receipts = (*answer.receipts[:-1], (*answer.receipts[-1], Receipt(Status.CREATED, lost.id)))
        return change(answer, receipts=receipts)


class MovesPastARefusal(Saboteur):
    """Moves the offset behind jobs that were refused."""

    notices = "an offset moves by takes alone"

    async def take(self, take: Any) -> Any:
        answer = await self.inner.take(take)
        if answer.status is TakeStatus.REFUSED:
            await self.inner.take(change(take, groups=(), dead={}))
        return answer


class TakesForEverybody(Saboteur):
    """Moves an offset wherever it is."""

    notices = "an offset moves (once|from where it is)"

    async def take(self, take: Any) -> Any:
        answer = await self.inner.take(take)
        if answer.status is not TakeStatus.RACED:
            return answer
        return await self.inner.take(change(take, expect=answer.offset.at if answer.offset else None))


class TakesFromStrangers(Saboteur):
    """Takes a log that was made anew for the one before it."""

    notices = "a foreign offset is refused"

    async def take(self, take: Any) -> Any:
        answer = await self.inner.take(take)
        if answer.status is not TakeStatus.FOREIGN:
            return answer
        return await self.inner.take(change(take, source=answer.offset.source))


class TakesHalf(Saboteur):
    """Takes each group by itself, and moves on if one of them could be accepted."""

    notices = "a group is accepted whole or not at all|an offset moves"

    async def take(self, take: Any) -> Any:
        answer = await self.inner.take(take)
        if answer.status is not TakeStatus.REFUSED:
            return answer
        receipts = await self.inner.enqueue(take.groups)
        moved = await self.inner.take(change(take, groups=(), dead={}))
        return change(moved, receipts=tuple(receipts))


class BringsThemToLife(Saboteur):
    """Takes jobs that are to be born dead for jobs like any other."""

    notices = "a job is born dead with its error|states change by"

    async def take(self, take: Any) -> Any:
        return await self.inner.take(change(take, dead={}))


class ForgetsWhatWasUnfit(Saboteur):
    """Does not keep why a job was born dead."""

    notices = "a job is born dead with its error"

    async def take(self, take: Any) -> Any:
        return await self.inner.take(change(take, dead=dict.fromkeys(take.dead, Error(type="unknown"))))
