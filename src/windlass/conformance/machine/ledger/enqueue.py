"""What was answered to `enqueue`, to the children of a settlement and to the jobs of a schedule's tick."""

from collections.abc import Sequence

import msgspec

from windlass.conformance.machine.ledger.records import Entry, Ledger, key_of
from windlass.conformance.machine.snapshot import Snapshot
from windlass.conformance.machine.violated import require
from windlass.core.job import Edge, Mode, NewJob, Receipt, Refusal, Status
from windlass.core.state import WAITING
from windlass.core.units import JobId


def enqueued(
    ledger: Ledger, groups: Sequence[Sequence[NewJob]], answers: Sequence[Sequence[Receipt]]
) -> None:
    """Groups were answered."""
    same_shape = [len(group) for group in groups] == [len(receipts) for receipts in answers]
    require("receipts have the shape of the groups", same_shape, groups, answers)
    for group, receipts in zip(groups, answers, strict=True):
        _group(ledger, group, receipts)


def spawned(ledger: Ledger, parent: JobId, children: Sequence[NewJob]) -> None:
    """Children came with a settlement that counts. Whether a key absorbed one can only be read."""
    for child in children:
        if not known(ledger, child.id) and child.id not in ledger.absorbed:
            _accepted(ledger, child, parent)
            if child.key is not None:
                ledger.tentative.add(child.id)


def resolve_tentative(ledger: Ledger, now: Snapshot) -> None:
    """Forget the children that a key absorbed: they are not there."""
    for job in ledger.tentative:
        if now.jobs.get(job) is None:
            key = key_of(ledger.entries.pop(job).job)
            ledger.created.discard(job)
            holder = max((e for e in ledger.entries.values() if key_of(e.job) == key), key=lambda e: e.order)
            ledger.absorbed[job] = (holder.id, ledger.time.now + ledger.options.resend_window)


def _accepted(ledger: Ledger, job: NewJob, parent: JobId | None = None) -> None:
    """A job came into being."""
    now = ledger.time.now
    ledger.entries[job.id] = Entry(
        job=job,
        accepted_at=now,
        due=job.run_at if job.run_at is not None else now + job.delay,
        expires_at=None if job.expires is None else now + job.expires,
        order=ledger.next_order(),
        parent=parent,
        pristine=job.run_at is None,  # a time of its own may put it before its elders
    )
    ledger.absorbed.pop(job.id, None)
    ledger.touched.add(job.id)
    ledger.created.add(job.id)


def known(ledger: Ledger, job: JobId) -> bool:
    """Whether an id is known: there is a job, or the memory of how it ended."""
    return job in ledger.created or ledger.view(job) is not None


def _group(ledger: Ledger, group: Sequence[NewJob], receipts: Sequence[Receipt]) -> None:
    refused = [receipt for receipt in receipts if receipt.status is Status.REFUSED]
    if refused:
        require("a group is accepted whole or not at all", len(refused) == len(receipts), receipts)
        refusals = {receipt.refusal for receipt in refused}
        named = None not in refusals and refusals != {Refusal.NEIGHBOUR}
        require("a refusal gives its reason", named, receipts)
        return
    for job, receipt in zip(group, receipts, strict=True):
        require("receipts come in the order of the jobs", receipt.job == job.id, job, receipt)
        _accepted_or_absorbed(ledger, job, receipt)
    for job in group:
        if job.id in ledger.created:
            entry = ledger.entries[job.id]
            entry.job = msgspec.structs.replace(entry.job, after=_standing(ledger, entry.job))


def _standing(ledger: Ledger, job: NewJob) -> tuple[Edge, ...]:
    """The edges of a job; one to an absorbed call leads to the job that stands for it.

    Two may then lead to the same job; which of them is kept is left open.
    """
    edges: list[Edge] = []
    for edge in job.after:
        parent = edge.parent
        if not known(ledger, parent):
            absorbed = parent in ledger.absorbed and ledger.time.now < ledger.absorbed[parent][1]
            require("an edge leads to a job", absorbed, job, parent)
            parent = ledger.absorbed[parent][0]
        edges.append(Edge(parent, edge.on_failure))
    return tuple(edges)


def _accepted_or_absorbed(ledger: Ledger, job: NewJob, receipt: Receipt) -> None:
    if known(ledger, job.id):
        itself = receipt.status is Status.DUPLICATE and receipt.of in (None, job.id)
        require("resending a known id is a no-op", itself, job, receipt)
        return
    if job.id in ledger.absorbed and ledger.time.now < ledger.absorbed[job.id][1]:
        same = receipt.of == ledger.absorbed[job.id][0] and receipt.status is not Status.CREATED
        require("resending an absorbed call is a no-op", same, job, receipt, ledger.absorbed[job.id])
        return
    if receipt.status is Status.CREATED:
        require("a queue is declared before its first use", ledger.settings.known(job.queue), job)
        _accepted(ledger, job)
        return
    require("another job stands for an absorbed call", receipt.of not in (None, job.id), job, receipt)
    assert receipt.of is not None
    other = ledger.entry(receipt.of)
    same_key = job.key is not None and key_of(other.job) == key_of(job)
    require("only a job with the same key absorbs a call", same_key, job, other)
    ledger.absorbed[job.id] = (other.id, ledger.time.now + ledger.options.resend_window)
    if receipt.status is Status.REPLACED:
        _replaced(ledger, other, job)


def _replaced(ledger: Ledger, other: Entry, job: NewJob) -> None:
    view = ledger.view(other.id)
    waits = other.id in ledger.created or (view is not None and view.state in WAITING)
    require("only a waiting job is replaced, by mode", waits and job.mode is Mode.REPLACE, job, view)
    now = ledger.time.now
    other.job = msgspec.structs.replace(
        other.job,
        payload=job.payload,
        headers=job.headers,
        tags=job.tags,
        priority=job.priority,
        revision=job.revision,
        max_attempts=job.max_attempts,
    )
    other.due = job.run_at if job.run_at is not None else now + job.delay
    other.expires_at = None if job.expires is None else now + job.expires
    other.attempt = other.crashes = 0
    other.started = other.overspent = other.pristine = False
    other.first_held = None
    other.memos.clear()
    ledger.touched.add(other.id)
