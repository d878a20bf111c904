"""The audit log: what operators changed. Who, what, which, how many jobs; the last 1,000 entries."""

import getpass
import os
import socket
from collections.abc import AsyncIterator, Mapping
from datetime import datetime

import msgspec

from windlass.admin.reading import documents, store_time
from windlass.admin.views import moment
from windlass.broker.contract import Broker
from windlass.core.settings import Kind, Subject
from windlass.core.units import Micros
from windlass.errors import WindlassError

KEPT = 1_000
LONGEST_REASON = 500
"""Characters of a reason."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an operator did."""

    at: Micros
    by: str
    what: str
    chosen: Mapping[str, str]
    """The filter, in words; never arguments of a job."""
    jobs: int
    """How many it was done to."""
    wanted: int
    """How many were counted before."""
    reason: str = ""
    """Why, in the operator's words."""


class ActShown(msgspec.Struct, frozen=True, kw_only=True):
    """The same for people and programs."""

    at: datetime
    by: str
    what: str
    chosen: Mapping[str, str]
    jobs: int
    wanted: int
    reason: str


def operator_name() -> str:
    """Who is at this terminal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


class Audit:
    """The record of one namespace."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def record(
        self,
        what: str,
        chosen: Mapping[str, str],
        *,
        jobs: int,
        wanted: int,
        by: str | None = None,
        reason: str = "",
    ) -> None:
        """Keep what was done."""
        now = await store_time(self._broker)
        act = Act(
            at=now,
            by=by or operator_name(),
            what=what,
            chosen=chosen,
            jobs=jobs,
            wanted=wanted,
            reason=reason.strip(),
        )
        # The name sorts by time, and two of one moment differ.
        name = f"{now:016x}-{os.urandom(4).hex()}"
        await self._broker.override(Subject(Kind.AUDIT, name), msgspec.json.encode(act), 0)
        await self._trim()

    async def acts(self) -> AsyncIterator[ActShown]:
        """What was done, newest first."""
        kept = [document async for document in documents(self._broker, Kind.AUDIT)]
        for document in reversed(kept):
            if isinstance(document.override, bytes):
                act = msgspec.json.decode(document.override, type=Act)
                yield ActShown(
                    at=moment(act.at),
                    by=act.by,
                    what=act.what,
                    chosen=act.chosen,
                    jobs=act.jobs,
                    wanted=act.wanted,
                    reason=act.reason,
                )

    async def _trim(self) -> None:
        kept = [document async for document in documents(self._broker, Kind.AUDIT)]
        for document in kept[: max(0, len(kept) - KEPT)]:
            await self._broker.override(document.subject, None, document.version)


async def recorded(
    audit: Audit, what: str, chosen: Mapping[str, str], *, jobs: int, wanted: int, reason: str = ""
) -> str:
    """Keep what was done, if the store can; else why not. What is done is done."""
    try:
        await audit.record(what, chosen, jobs=jobs, wanted=wanted, reason=reason)
    except WindlassError as error:
        return str(error)
    return ""
