"""What is put into object storage, and reading it again, for one namespace.

The methods are coroutines that never suspend if they are called with `blocking=True`: blocking code runs them
with `complete`.
"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from windlass.core.alike import Alike
from windlass.core.codec import check_referred, is_reference, read_reference, reference_to
from windlass.core.job import JobDetail, Mode, NewJob
from windlass.core.settlement import Settlement
from windlass.core.units import Fence, JobId
from windlass.errors import ValueConflict, ValueMissing, ValuesUnavailable
from windlass.values.bucket import Bucket
from windlass.values.configured import ValueSettings, check_inside
from windlass.values.names import kept_key, owner_key, payload_key, result_key, results_of, trial_key
from windlass.values.place import read_url

Knows: TypeAlias = Callable[[JobId], Awaitable[bool]]
"""Whether the store has a record of a job."""
_PAGE = 1_000
_PUTS = 3
"""How often an object is put that is said to be there, and is not there when it is read."""


class Kept(msgspec.Struct, frozen=True):
    """Which result of a job was its result, for when the store has forgotten."""

    fence: Fence
    reference: str


_decode_kept = msgspec.json.Decoder(Kept).decode


class Values:
    """Large values of one namespace."""

    def __init__(self, settings: ValueSettings) -> None:
        self.bucket = Bucket(read_url(settings.url))
        self.kept = settings.kept
        self.namespace = settings.namespace
        self._over = settings.over
        self._most_inside = settings.most_inside

    @property
    def shown(self) -> str:
        """Where they are, for people."""
        return self.bucket.place.shown

    # --- putting --------------------------------------------------------------------------------------------

    async def sent(
        self, groups: Sequence[Sequence[NewJob]], knows: Knows, *, blocking: bool = False
    ) -> Sequence[Sequence[NewJob]]:
        """Put the large payloads of jobs that are about to be enqueued; the jobs with references instead.
        `ValueConflict`: there is another payload of a job that the store does not know. If it knows the job,
        it shall answer as for every id that comes again.
        """
        return [
            [await self._job(job, knows, blocking=blocking) for job in group]
            if self._has_large(group)
            else group
            for group in groups
        ]

    async def settled(self, settlement: Settlement, *, blocking: bool = False) -> Settlement:
        """Put what is large in a settlement: the result, and the payloads of children. `ValueConflict` says
        whose object is there already.
        """
        result = settlement.result
        if result is not None and len(result) > self._over:
            key = result_key(self.namespace, settlement.job, settlement.fence)
            await self._put(settlement.job, key, result, blocking=blocking)
            result = reference_to(result)
        spawn = tuple([await self._job(job, None, blocking=blocking) for job in settlement.spawn])
        return msgspec.structs.replace(settlement, result=result, spawn=spawn)

    def is_large(self, settlement: Settlement) -> bool:
        """Whether there is something in a settlement that has to be put."""
        result = settlement.result
        return (result is not None and len(result) > self._over) or self._has_large(settlement.spawn)

    def _has_large(self, jobs: Sequence[NewJob]) -> bool:
        payloads = jobs.payloads if isinstance(jobs, Alike) else [job.payload for job in jobs]
        return any(len(payload) > self._over for payload in payloads)

    async def _job(self, job: NewJob, knows: Knows | None, *, blocking: bool) -> NewJob:
        if len(job.payload) <= self._over:
            return job
        if job.mode is Mode.REPLACE:
            # Its payload may become that of another job, whose name an object would have to have.
            check_inside(
                job.payload, self._most_inside, f'{job.task}: a payload of a call with mode="replace"'
            )
            return job
        try:
            await self._put(job.id, payload_key(self.namespace, job.id), job.payload, blocking=blocking)
        except ValueConflict:
            if knows is None or not await knows(job.id):
                raise
        return msgspec.structs.replace(job, payload=reference_to(job.payload))

    async def _put(self, job: JobId, key: str, document: bytes, *, blocking: bool) -> None:
        """Put an object. Sent again it is the same, and then all is well."""
        for _ in range(_PUTS):
            if await self.bucket.put(key, document, blocking=blocking):
                return
            found = await self.bucket.get(key, blocking=blocking)
            if found == document:
                return
            if found is not None:  # else it was swept in between
                raise ValueConflict(
                    f"object storage {self.shown} has something else under {key}; nothing is replaced", job
                )
        raise ValuesUnavailable(f"object storage {self.shown} says that it has {key}, and does not give it")

    # --- reading --------------------------------------------------------------------------------------------

    async def payload(self, job: JobId, payload: bytes, *, blocking: bool = False) -> bytes:
        """A payload as it was given. `ValueMissing`, `UnreadablePayload`: it is not there as it was put."""
        return await self._read(payload_key(self.namespace, job), payload, blocking=blocking)

    async def result(self, job: JobId, fence: Fence, result: bytes, *, blocking: bool = False) -> bytes:
        """A result as it was given; errors as for a payload."""
        return await self._read(result_key(self.namespace, job, fence), result, blocking=blocking)

    async def whole(self, job: JobDetail, most: int | None = None) -> JobDetail:
        """A job with payload and result as they were given. What has more than `most` bytes stays out."""
        payload, result = job.payload, job.result
        if self._is_wanted(payload, most):
            payload = await self.payload(job.id, payload)
        if result is not None and self._is_wanted(result, most):
            result = await self.result(job.id, job.fence, result)
        return msgspec.structs.replace(job, payload=payload, result=result)

    async def link_or_bytes(self, job: JobDetail, what: Literal["payload", "result"]) -> bytes | str:
        """A signed link to a payload or a result; its bytes where this place signs none."""
        if what == "payload":
            key, reference = payload_key(self.namespace, job.id), job.payload
        else:
            key, reference = result_key(self.namespace, job.id, job.fence), job.result or b""
        return await self.bucket.link(key) or await self._read(key, reference, blocking=False)

    def _is_wanted(self, document: bytes, most: int | None) -> bool:
        return is_reference(document) and (most is None or read_reference(document).size <= most)

    async def kept_result(self, job: JobId) -> bytes | None:
        """The result of a job that the store keeps none of any more; None: it is not kept here either."""
        kept = await self._kept(job)
        if kept is None:
            return None
        try:
            return await self.result(job, kept.fence, kept.reference.encode())
        except ValueMissing:
            return None

    async def kept_fence(self, job: JobId) -> Fence | None:
        """Which result was the job's, if that was noted."""
        kept = await self._kept(job)
        return None if kept is None else kept.fence

    async def keep_result(self, job: JobDetail) -> None:
        """Note which result a job had, so that it can be read when the store has forgotten the job."""
        reference = job.result
        if reference is None or not is_reference(reference):  # the store has dropped it already
            document = await self.bucket.get(result_key(self.namespace, job.id, job.fence), blocking=False)
            if document is None:
                return
            reference = reference_to(document)
        kept = msgspec.json.encode(Kept(job.fence, reference.decode()))
        await self.bucket.put(kept_key(self.namespace, job.id), kept, blocking=False)

    async def _kept(self, job: JobId) -> Kept | None:
        kept = await self.bucket.get(kept_key(self.namespace, job), blocking=False)
        try:
            return None if kept is None else _decode_kept(kept)
        except msgspec.MsgspecError:
            return None  # somebody else has put it there

    async def _read(self, key: str, document: bytes, *, blocking: bool) -> bytes:
        if not is_reference(document):
            return document
        reference = read_reference(document)
        found = await self.bucket.get(key, blocking=blocking)
        if found is None:
            raise ValueMissing(
                f"object storage {self.shown} has no {key}: it was removed, or values= is another one here "
                "than where it was put"
            )
        return check_referred(reference, found)

    # --- removing -------------------------------------------------------------------------------------------

    async def keep_no_longer(self, job: JobId) -> None:
        """Forget which result a job had: then its objects go when the store forgets the job."""
        await self.bucket.remove([kept_key(self.namespace, job)])

    async def remove_payload(self, job: JobId) -> None:
        """Remove the payload of a job, if there is one here."""
        await self.bucket.remove([payload_key(self.namespace, job)])

    async def remove_results(self, job: JobId) -> None:
        """Remove all results of a job that are here, those of stale workers, too."""
        prefix = results_of(self.namespace, job)
        while found := await self.bucket.page(prefix, "", _PAGE):
            await self.bucket.remove([each.key for each in found])

    # --- what is here ---------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Ask object storage something. `ValuesUnavailable`: it does not answer, or lets nobody in."""
        await self.owner()

    async def try_out(self) -> None:
        """Put a small object, read and remove it. `ValuesUnavailable` says what cannot be done."""
        key = trial_key(self.namespace, uuid.uuid4().hex)
        await self.bucket.put(key, b"windlass", blocking=False)
        await self.bucket.get(key, blocking=False)
        await self.bucket.page(key, "", 1)
        await self.bucket.remove([key])

    async def owner(self) -> str | None:
        """Of which store these are, as the first sweeper has noted; None: nobody has yet."""
        owner = await self.bucket.get(owner_key(self.namespace), blocking=False)
        return None if owner is None else owner.decode(errors="replace")

    async def own(self, store: str) -> None:
        """Note of which store these are, unless that is noted already."""
        await self.bucket.put(owner_key(self.namespace), store.encode(), blocking=False)
