"""Requests that may come twice: under an idempotency key the jobs of the first are the answer to all.

The store keeps a document for each key, named by the day and a hash of caller and key, so that old ones come
first and are dropped. The server writes it before it sends the jobs, with their ids, and marks it when they
were accepted. A server that finds it unmarked sends the same ids again, which makes no second job.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from windlass.admin.reading import store_time
from windlass.broker.contract import Broker
from windlass.core.settings import Change, Kind, Subject
from windlass.core.units import DAY, JobId, Micros

KEPT: Micros = DAY


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a key stands for."""

    digest: str
    """Of the body of the first request."""
    jobs: tuple[JobId, ...]
    """That were made for it."""
    stands: tuple[JobId, ...] = ()
    """That stand for it: another one, where a unique key absorbed a call."""
    created: tuple[bool, ...] = ()
    sent: bool = False
    at: Micros


class OtherBody(Exception):
    """The key was used for another request."""


class Requests:
    """The requests of one caller."""

    def __init__(self, broker: Broker, caller: str) -> None:
        self._broker = broker
        self._caller = caller

    async def begin(self, key: str, body: bytes, jobs: Sequence[JobId]) -> "Begun":
        """Take a key for a request. `OtherBody` if it stands for another one."""
        now = await store_time(self._broker)
        mark, digest = self._mark(key), hashlib.sha256(body).hexdigest()
        yesterday = await self._read(_name(now - DAY, mark))
        if yesterday is not None and yesterday[0].at > now - KEPT:
            return self._known(yesterday, digest, _name(now - DAY, mark))
        name = _name(now, mark)
        request = Request(digest=digest, jobs=tuple(jobs), at=now)
        changed = await self._broker.override(Subject(Kind.REQUEST, name), msgspec.json.encode(request), 0)
        if changed.change is Change.APPLIED:
            await self._drop(now)
            return Begun(request, name, changed.version, is_new=True)
        known = await self._read(name)
        if known is None:  # given up in this moment: the other request was refused
            return await self.begin(key, body, jobs)
        return self._known(known, digest, name)

    async def accepted(self, begun: "Begun", stands: Sequence[JobId], created: Sequence[bool]) -> None:
        """Keep what the request led to."""
        done = msgspec.structs.replace(begun.request, sent=True, stands=tuple(stands), created=tuple(created))
        await self._broker.override(
            Subject(Kind.REQUEST, begun.name), msgspec.json.encode(done), begun.version
        )

    async def give_up(self, begun: "Begun") -> None:
        """Forget a request that was refused: nothing of it exists."""
        await self._broker.override(Subject(Kind.REQUEST, begun.name), None, begun.version)

    def _mark(self, key: str) -> str:
        return hashlib.sha256(f"{self._caller}\0{key}".encode("utf-8", "replace")).hexdigest()[:40]

    def _known(self, known: tuple[Request, int], digest: str, name: str) -> "Begun":
        request, version = known
        if request.digest != digest:
            raise OtherBody
        return Begun(request, name, version, is_new=False)

    async def _read(self, name: str) -> tuple[Request, int] | None:
        before = Subject(Kind.REQUEST, name[:-1])  # the name that sorts just before, except for unused ones
        for document in await self._broker.documents(Kind.REQUEST, before, 2):
            if document.subject.name == name and isinstance(document.override, bytes):
                return msgspec.json.decode(document.override, type=Request), document.version
        return None

    async def _drop(self, now: Micros) -> None:
        """Drop some of the oldest, if their time is over: as many as may come, and more."""
        for document in await self._broker.documents(Kind.REQUEST, None, 2):
            if document.subject.name < _name(now - 2 * DAY, "g"):
                await self._broker.override(document.subject, None, document.version)


class Begun(msgspec.Struct, frozen=True):
    """A request under way, or one that came before."""

    request: Request
    name: str
    version: int
    is_new: bool


def _name(at: Micros, mark: str) -> str:
    return f"{at // DAY:06}-{mark}"
