"""What was answered to `enqueue`, to the children of a settlement and to the jobs of a schedule's tick."""

from collections.abc import Sequence

import msgspec

from windlass.conformance.machine.ledger.records import Absorbed, Entry, Ledger, Tie, key_of
from windlass.conformance.machine.snapshot import Snapshot
from windlass.conformance.machine.violated import require
from windlass.core.job import Edge, Mode, NewJob, Receipt, Refusal, Status
from windlass.core.state import WAITING
from windlass.core.units import JobId, Micros


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
            _tie(ledger, ledger.entries[child.id])
            if child.key is not None:
                ledger.tentative.add(child.id)


def resolve_tentative(ledger: Ledger, now: Snapshot) -> None:
    """Forget the children that a key absorbed: they are not there."""
    for job in ledger.tentative:
        if now.jobs.get(job) is None:
            key = key_of(ledger.entries.pop(job).job)
            ledger.created.discard(job)
            holder = max((e for e in ledger.entries.values() if key_of(e.job) == key), key=lambda e: e.order)
            _absorb(ledger, job, holder)


def _accepted(ledger: Ledger, job: NewJob, parent: JobId | None = None) -> None:
    """A job came into being."""
    now = ledger.time.now
    if (before := ledger.entries.get(job.id)) is not None and before.job.key is not None:
        ledger.earlier_keys[job.id].add(key_of(before.job))
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
    before = frozenset(ledger.created)
    for job, receipt in zip(group, receipts, strict=True):
        require("receipts come in the order of the jobs", receipt.job == job.id, job, receipt)
        _accepted_or_absorbed(ledger, job, receipt)
    for job in ledger.created - before:
        _tie(ledger, ledger.entries[job])


def _tie(ledger: Ledger, entry: Entry) -> None:
    """Note the parents of a new job as they are now: what comes about later is what its edges go by."""
    entry.job = msgspec.structs.replace(entry.job, after=_standing(ledger, entry.job))
    for edge in entry.job.after:
        view = ledger.view(edge.parent)
        entry.ties[edge.parent] = Tie(
            parent=ledger.entry(edge.parent),
            replays=0 if view is None else view.replays,
            known=known(ledger, edge.parent),
        )


def _standing(ledger: Ledger, job: NewJob) -> tuple[Edge, ...]:
    """The edges of a job; one to an absorbed call leads to the job that stands for it.

    Two may then lead to the same job; which of them is kept is left open.
    """
    edges: list[Edge] = []
    for edge in job.after:
        parent = edge.parent
        if not known(ledger, parent):
            absorbed = ledger.absorbed.get(parent)
            leads = absorbed is not None and ledger.time.now < absorbed.until
            require("an edge leads to a job", leads, job, parent)
            parent = ledger.absorbed[parent].of
        edges.append(Edge(parent, edge.on_failure))
    return tuple(edges)


def _accepted_or_absorbed(ledger: Ledger, job: NewJob, receipt: Receipt) -> None:
    if known(ledger, job.id):
        itself = receipt.status is Status.DUPLICATE and receipt.of in (None, job.id)
        require("resending a known id is a no-op", itself, job, receipt)
        return
    absorbed = ledger.absorbed.get(job.id)
    if absorbed is not None and ledger.time.now < absorbed.until:
        same = receipt.of == absorbed.of and receipt.status is not Status.CREATED
        require("resending an absorbed call is a no-op", same or not absorbed.sure, job, receipt, absorbed)
        if same:
            return
    if receipt.status is Status.CREATED:
        require("a queue is declared before its first use", ledger.settings.known(job.queue), job)
        _check_key_is_free(ledger, job)
        _accepted(ledger, job)
        return
    _absorbed_by_key(ledger, job, receipt)


def _absorbed_by_key(ledger: Ledger, job: NewJob, receipt: Receipt) -> None:
    # Its own id, if it was sent before and is forgotten, while the key of that job still holds.
    stands = receipt.of is not None and (receipt.of != job.id or job.id in ledger.entries)
    require("another job stands for an absorbed call", stands, job, receipt)
    assert receipt.of is not None
    other = ledger.entry(receipt.of)
    if job.key is not None and key_of(job) in ledger.earlier_keys[other.id]:
        require("a key that outlives its job only absorbs", receipt.status is Status.DUPLICATE, job, other)
        require("a replacing call is never dropped", job.mode is not Mode.REPLACE, job, other)
        _absorb(ledger, job.id, other)
        return
    same_key = job.key is not None and key_of(other.job) == key_of(job)
    require("only a job with the same key absorbs a call", same_key, job, other)
    _absorb(ledger, job.id, other)
    if receipt.status is Status.REPLACED:
        _replaced(ledger, other, job)
        return
    require("a replacing call is never dropped", job.mode is not Mode.REPLACE, job, other)
    until = _held_until(ledger, other)
    require("a key is free after its window", until is None or ledger.time.now < until, job, other, until)


def _absorb(ledger: Ledger, job: JobId, by: Entry) -> None:
    until = ledger.time.now + ledger.options.resend_window
    ledger.absorbed[job] = Absorbed(of=by.id, until=until)


def _check_key_is_free(ledger: Ledger, job: NewJob) -> None:
    """No job that finished within its window lets another call but a replacing one create."""
    if job.key is None or job.mode is Mode.REPLACE or ledger.time.went_back:
        return
    others = [entry for entry in ledger.entries.values() if key_of(entry.job) == key_of(job)]
    last = max(others, key=lambda entry: entry.order, default=None)
    if last is not None and all(entry.keeps_key for entry in others):
        until = _held_until(ledger, last)
        require("a key is held for its window", until is None or ledger.time.now >= until, job, last, until)


def _held_until(ledger: Ledger, entry: Entry) -> Micros | None:
    """When the key of a finished job is free; None if it is not finished, or cannot be told."""
    finished = ledger.finished_at.get(entry.id)
    if entry.final is None or finished is None or not entry.keeps_key or entry.id in ledger.touched:
        return None
    if entry.job.mode is Mode.THROTTLE:
        return max(finished, entry.accepted_at + entry.job.window)
    return finished + entry.job.window


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
    other.started = other.overspent = other.pristine = other.keeps_key = False
    other.first_held = None
    other.memos.clear()
    ledger.touched.add(other.id)
