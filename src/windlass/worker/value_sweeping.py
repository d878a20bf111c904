"""Sweeping object storage: objects of jobs that the store does not know, and results that were nobody's.

One worker of a namespace sweeps (`turn.py`), a page at a time, with long rests: nothing waits for it. What is
removed is decided by `values/orphans.py`. It removes nothing before the store has answered for a while: a
worker that waited for the store through an outage settles first what it has put.

The objects of a namespace belong to one store. The first sweeper notes an identity there, and in the store;
a sweeper that finds another one there removes nothing. Otherwise an empty store, such as a developer's,
would take every object of the real one for an orphan.

Also here, in every worker: jobs that are held because object storage was away are freed when it answers.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from windlass.broker.contract import Broker
from windlass.config import Config
from windlass.core.codec import is_reference
from windlass.core.job import JobDetail
from windlass.core.reading import Reading
from windlass.core.settings import Kind, Subject
from windlass.core.state import State
from windlass.core.units import SECOND, JobId, Micros
from windlass.errors import StoreError, ValuesError
from windlass.pace import Pace
from windlass.patience import Backoff
from windlass.values.bucket import Stored
from windlass.values.names import job_of, payloads, results, results_of
from windlass.values.orphans import Judged, Rules, judge_payload, judge_results, rules_for
from windlass.values.values import Values
from windlass.worker.holds import VALUES_KEY, unhold
from windlass.worker.turn import Turn

_log = logging.getLogger("windlass.worker")

PAGE = 1_000
"""Objects that are looked at in one step."""
DETAILS = 20
"""Jobs that are read whole at once: each may carry a payload and a result below the limit."""
MOST_OF_A_JOB = 100_000
LOOK = 10.0
"""Seconds between two looks for held jobs, and between two pages."""
REST = 900.0
"""Seconds between two rounds through all objects."""
QUIET_BEFORE = 60.0
"""Seconds for which the store must have answered before anything is removed."""
LONGEST = 60.0


class SweepReading(Reading, frozen=True, kw_only=True):
    """How far a round is: behind which object, and of which store they are."""

    owner: str = ""
    rest_until: Micros = 0
    """When the next round begins."""


FIRST = SweepReading(cursor="")


class ValueSweeping:
    """The part of one worker in sweeping the objects of a namespace."""

    def __init__(
        self, broker: Broker, values: Values, config: Config, pace: Pace, *, rules: Rules | None = None
    ) -> None:
        self._broker = broker
        self._values = values
        self._pace = pace
        self._rules = rules or rules_for(
            resend_window=config.resend_window, has_front=config.front is not None, kept=config.values_kept
        )
        self._turn = Turn(broker, pace, Subject(Kind.READER, "values"), FIRST)
        self._sweep_at = pace.now() + QUIET_BEFORE
        self._told_foreign = False

    async def run(self) -> None:
        """Sweep, and wait."""
        backoff = Backoff(self._pace, first=1.0, most=LONGEST)
        try:
            while True:
                try:
                    await self.free()
                    if self._pace.now() >= self._sweep_at:
                        self._sweep_at = self._pace.now() + await self.sweep()
                    backoff.worked()
                    pause = LOOK * (0.75 + self._pace.jitter() / 2)
                except StoreError as error:
                    backoff.tell("object storage is not swept: %s; trying until it can be", error)
                    self._sweep_at = self._pace.now() + QUIET_BEFORE
                    pause = backoff.failed()
                except ValuesError as error:
                    backoff.tell("object storage: %s; trying until it works", error)
                    pause = backoff.failed()
                except Exception:  # noqa: BLE001 - whatever it is, the worker goes on
                    _log.exception("object storage: sweeping has failed; it is tried again")
                    pause = max(LOOK, backoff.failed())
                await self._pace.sleep(pause)
        finally:
            await self._turn.leave_at_end()

    async def free(self) -> int:
        """Free the jobs that are held because object storage was away, if it answers. Returns how many."""
        counts = await self._broker.counts()
        if not any(row.state is State.SCHEDULED and row.count for row in counts.rows):
            return 0
        await self._values.check()
        return await unhold(self._broker, VALUES_KEY)

    async def sweep(self) -> float:
        """Look at a page, if it is this worker's turn; how long to wait for the next."""
        reading = await self._turn.take()
        if reading is None:
            return REST
        if not reading.cursor and await self._turn.now() < reading.rest_until:
            return REST
        if not reading.owner:
            reading = await self._turn.keep(msgspec.structs.replace(reading, owner=uuid.uuid4().hex))
            if reading is None:
                return REST
        if not await self._is_own(reading.owner):
            return REST
        cursor = await self._page(reading.cursor or payloads(self._values.namespace))
        rest_until = reading.rest_until if cursor else await self._turn.now() + int(REST * SECOND)
        await self._turn.keep(msgspec.structs.replace(reading, cursor=cursor, rest_until=rest_until))
        return 0.0 if cursor else REST

    async def _is_own(self, owner: str) -> bool:
        noted = await self._values.owner()
        if noted is None:
            await self._values.own(owner)
            noted = await self._values.owner()
        if noted == owner:
            return True
        if not self._told_foreign:
            self._told_foreign = True
            _log.warning(
                "object storage %s is not swept: what is there under o/%s says that its objects are those of "
                "another store. If that store is gone, remove this one object",
                self._values.shown,
                self._values.namespace,
            )
        return False

    # --- a page ---------------------------------------------------------------------------------------------

    async def _page(self, after: str) -> str:
        """Sweep the objects behind a name, first payloads and then results; where to go on, "" at the end."""
        namespace = self._values.namespace
        are_payloads = after.startswith("p/")
        prefix = payloads(namespace) if are_payloads else results(namespace)
        found = await self._values.bucket.page(prefix, after, PAGE)
        is_last = len(found) < PAGE
        if are_payloads:
            await self._sweep_payloads(_by_job(found))
            return results(namespace) if is_last else found[-1].key
        of_job = _by_job(found)
        if not is_last and (last := job_of(found[-1].key)) is not None:
            # The results of a job are judged together: a page must not end between them.
            of_job[last] = await self._values.bucket.page(results_of(namespace, last), "", MOST_OF_A_JOB)
            found = [*found, *of_job[last]]
        await self._sweep_results(of_job)
        return "" if is_last else found[-1].key

    async def _sweep_payloads(self, of_job: Mapping[JobId, Sequence[Stored]]) -> None:
        jobs = await self._jobs(list(of_job))
        now = await self._turn.now()
        await self._remove(
            [
                judge_payload(each, jobs[job], now, self._rules)
                for job, found in of_job.items()
                for each in found
            ]
        )

    async def _sweep_results(self, of_job: Mapping[JobId, Sequence[Stored]]) -> None:
        jobs = await self._jobs(list(of_job))
        now = await self._turn.now()
        judged: list[Judged] = []
        for job, found in of_job.items():
            detail = jobs[job]
            marked = await self._values.kept_fence(job) if any(each.is_mark for each in found) else None
            verdict = judge_results(found, detail, marked, now, self._rules)
            if verdict.keep is not None and detail is not None:
                await self._values.keep_result(detail)
            judged.append(verdict)
        await self._remove(judged)

    async def _jobs(self, ids: Sequence[JobId]) -> dict[JobId, JobDetail | None]:
        """By id; of each only what is looked at."""
        found: dict[JobId, JobDetail | None] = {}
        for start in range(0, len(ids), DETAILS):
            some = ids[start : start + DETAILS]
            for job, detail in zip(some, await self._broker.get(some), strict=True):
                found[job] = None if detail is None else _slim(detail)
        return found

    async def _remove(self, judged: Sequence[Judged]) -> None:
        keys = [key for each in judged for key in each.remove]
        if keys:
            await self._values.bucket.remove(keys)
            _log.info("object storage: removed %d objects that no job needs any more", len(keys))


def _by_job(found: Sequence[Stored]) -> dict[JobId, list[Stored]]:
    """Objects by their jobs, without those that somebody else has put there."""
    of_job: dict[JobId, list[Stored]] = {}
    for stored in found:
        if (job := job_of(stored.key)) is not None:
            of_job.setdefault(job, []).append(stored)
    return of_job


def _slim(job: JobDetail) -> JobDetail:
    payload = job.payload if is_reference(job.payload) else b""
    result = job.result if job.result is not None and is_reference(job.result) else None
    return msgspec.structs.replace(job, payload=payload, result=result, deliveries=(), logs=())
