"""Settings: small documents in two layers, with compare-and-set."""

import asyncio
from typing import Any

import pytest

from windlass.conformance.harness import APP, Harness
from windlass.core.job import Edge, Refusal, Status
from windlass.core.limits import Rate
from windlass.core.settings import (
    Body,
    Change,
    Changed,
    Declaration,
    Document,
    Kind,
    LaneSettings,
    QueueSettings,
    Subject,
)
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND, JobId

_Q = Subject(Kind.QUEUE, "q")
_STRIKE = Subject(Kind.STRIKE, "mail")
_LAYOUTS: list[dict[str, Any]] = [{"order": "lane"}, {"age_step": MINUTE}, {"sequence": True}]


async def _try(store: Harness, subject: Subject, body: Body, *, app: str = APP, revision: int = 0) -> Changed:
    """Declare one document, whatever the answer."""
    declaration = Declaration(subject=subject, body=body, app=app, revision=revision)
    return (await store.broker.declare([declaration]))[0]


async def _found(store: Harness, subject: Subject) -> Document | None:
    documents = await store.broker.documents(subject.kind, limit=1_000)
    return next((document for document in documents if document.subject == subject), None)


async def _document(store: Harness, subject: Subject) -> Document:
    document = await _found(store, subject)
    assert document is not None, f"no document of {subject}"
    return document


async def _override(store: Harness, subject: Subject, body: Body | None) -> Changed:
    """Override as an operator does who has just read the document."""
    document = await _found(store, subject)
    return await store.broker.override(subject, body, document.version if document else 0)


async def _claimable(store: Harness, queue: str = "q") -> int:
    """How many jobs a worker gets now; they are given back."""
    leases = (await (await store.worker()).claim(queue)).leases
    for lease in leases:
        await store.release(lease)
    return len(leases)


async def test_declaration_replaces_its_document(store: Harness) -> None:
    """What it does not say is not set, in the document and in force."""
    first = await store.queue("q", concurrency=2, lane_concurrency=1, rate=Rate(5, SECOND))
    before = await _document(store, _Q)
    assert before == Document(
        subject=_Q,
        declared=QueueSettings(concurrency=2, lane_concurrency=1, rate=Rate(5, SECOND)),
        override=None,
        app=APP,
        revision=0,
        version=first.version,
    )
    await store.add_many(5)
    assert await _claimable(store) == 1
    second = await store.queue("q", concurrency=3)
    assert second.change is Change.APPLIED
    assert second.version > first.version
    after = await _document(store, _Q)
    assert (after.declared, after.version) == (QueueSettings(concurrency=3), second.version)
    assert await _claimable(store) == 3


async def test_declaration_replaces_its_document__of_any_kind(store: Harness) -> None:
    await store.lane("q", "acme", weight=3, concurrency=1)
    await store.lane("q", "acme", concurrency=2)
    lane = await _document(store, Subject(Kind.LANE, "q", "acme"))
    assert lane.declared == LaneSettings(concurrency=2)
    task = Subject(Kind.TASK, "mail")
    await store.declare(task, b'{"old": 1}')
    await store.declare(task, b'{"new": 2}')
    assert (await _document(store, task)).declared == b'{"new": 2}'


async def test_declaration_replaces_its_document__or_leaves_an_equal_one(store: Harness) -> None:
    for subject, body in (
        (_Q, QueueSettings(concurrency=4)),
        (Subject(Kind.LANE, "q", "acme"), LaneSettings(weight=2)),
        (Subject(Kind.TASK, "mail"), b"{}"),
    ):
        first = await _try(store, subject, body)
        assert first.change is Change.APPLIED
        before = await _document(store, subject)
        assert await _try(store, subject, body) == Changed(Change.UNCHANGED, first.version)
        assert await _document(store, subject) == before


async def test_declaration_belongs_to_its_app(store: Harness) -> None:
    """Another app is refused, whatever its revision and also with an equal document."""
    for subject, body, other in (
        (Subject(Kind.QUEUE, "mail"), QueueSettings(concurrency=1), QueueSettings()),
        (Subject(Kind.LANE, "q", "acme"), LaneSettings(weight=2), LaneSettings()),
        (Subject(Kind.TASK, "mail"), b"1", b"2"),
    ):
        first = await _try(store, subject, body, app="shop", revision=5)
        before = await _document(store, subject)
        assert (before.app, before.revision) == ("shop", 5)
        for revision in (1, 5, 9):
            for foreign in (other, body):
                changed = await _try(store, subject, foreign, app="blog", revision=revision)
                assert changed == Changed(Change.OTHER_APP, first.version)
        assert await _document(store, subject) == before


async def test_declaration_belongs_to_its_app__but_not_what_an_operator_wrote(store: Harness) -> None:
    await _override(store, _STRIKE, b"by hand")
    assert (await _try(store, _STRIKE, b"declared", app="shop")).change is Change.APPLIED
    document = await _document(store, _STRIKE)
    assert (document.declared, document.override, document.app) == (b"declared", b"by hand", "shop")


async def test_older_revision_changes_nothing(store: Harness) -> None:
    for subject, body, other in (
        (Subject(Kind.QUEUE, "mail"), QueueSettings(concurrency=1), QueueSettings()),
        (Subject(Kind.LANE, "q", "acme"), LaneSettings(weight=2), LaneSettings()),
        (Subject(Kind.TASK, "mail"), b"1", b"2"),
    ):
        newer = await _try(store, subject, body, revision=5)
        before = await _document(store, subject)
        for older in (other, body):
            changed = await _try(store, subject, older, revision=4)
            assert changed == Changed(Change.NEWER_REVISION, newer.version)
        assert await _document(store, subject) == before
        assert (await _try(store, subject, other, revision=5)).change is Change.APPLIED
        assert (await _try(store, subject, body, revision=6)).change is Change.APPLIED
        assert (await _document(store, subject)).revision == 6


async def test_older_revision_changes_nothing__of_what_a_newer_one_confirmed(store: Harness) -> None:
    await store.queue("mail", concurrency=1)
    same = await _try(store, Subject(Kind.QUEUE, "mail"), QueueSettings(concurrency=1), revision=2)
    assert same.change in (Change.APPLIED, Change.UNCHANGED)
    older = await _try(store, Subject(Kind.QUEUE, "mail"), QueueSettings(concurrency=9), revision=1)
    assert older.change is Change.NEWER_REVISION
    assert (await _document(store, Subject(Kind.QUEUE, "mail"))).declared == QueueSettings(concurrency=1)


async def _unfinished(store: Harness, state: State) -> JobId:
    """A job of the queue `q` in a state."""
    if state is State.BLOCKED:
        await store.queue("parents")
        return await store.add(after=(Edge(await store.add(queue="parents")),))
    job = await store.add(delay=HOUR if state is State.SCHEDULED else 0)
    if state is State.RUNNING:
        await (await store.worker()).one()
    return job


@pytest.mark.parametrize("layout", _LAYOUTS, ids=str)
@pytest.mark.parametrize("state", [State.BLOCKED, State.SCHEDULED, State.READY, State.RUNNING])
async def test_layout_is_fixed_in_use(store: Harness, state: State, layout: dict[str, Any]) -> None:
    job = await _unfinished(store, state)
    before = await _document(store, _Q)
    body = QueueSettings(concurrency=7, **layout)
    assert await _try(store, _Q, body) == Changed(Change.IN_USE, before.version)
    assert await _override(store, _Q, body) == Changed(Change.IN_USE, before.version)
    assert await _document(store, _Q) == before
    assert (await _try(store, _Q, QueueSettings(concurrency=7, bands={0: 1}))).change is Change.APPLIED
    await store.cancel(job)
    if state is State.RUNNING:
        assert (await _try(store, _Q, body)).change is Change.IN_USE, "it is flagged, not finished"
        return
    assert (await _try(store, _Q, body)).change is Change.APPLIED


async def test_layout_is_fixed_in_use__not_by_finished_jobs_nor_by_other_queues(store: Harness) -> None:
    await store.queue("other")
    await store.add(queue="other")
    worker = await store.worker()
    dead = await store.add()
    await store.dead(await worker.one())
    await store.add()
    await store.done(await worker.one())
    await store.cancel(await store.add())
    assert (await _try(store, _Q, QueueSettings(sequence=True))).change is Change.APPLIED
    await store.replay(dead)
    assert (await _try(store, _Q, QueueSettings())).change is Change.IN_USE
    assert (await worker.one()).job == dead


async def test_layout_is_fixed_in_use__also_for_a_reset(store: Harness) -> None:
    await _override(store, _Q, QueueSettings(sequence=True))
    await store.add()
    before = await _document(store, _Q)
    assert await _override(store, _Q, None) == Changed(Change.IN_USE, before.version)
    assert await _document(store, _Q) == before


async def test_lane_needs_its_queue(store: Harness) -> None:
    lane = Subject(Kind.LANE, "nowhere", "acme")
    assert await _try(store, lane, LaneSettings(weight=2)) == Changed(Change.UNKNOWN_QUEUE, 0)
    assert await _override(store, lane, LaneSettings(weight=2)) == Changed(Change.UNKNOWN_QUEUE, 0)
    assert await _found(store, lane) is None
    assert await _found(store, Subject(Kind.QUEUE, "nowhere")) is None


async def test_lane_needs_its_queue__which_may_come_in_the_same_call(store: Harness) -> None:
    """Declarations are judged one after the other, each by itself."""
    lane = Subject(Kind.LANE, "new", "acme")
    bodies: list[tuple[Subject, Body]] = [
        (lane, LaneSettings(weight=2)),
        (Subject(Kind.QUEUE, "new"), QueueSettings()),
        (lane, LaneSettings(weight=3)),
    ]
    answers = await store.broker.declare(
        [Declaration(subject=subject, body=body, app=APP) for subject, body in bodies]
    )
    assert [answer.change for answer in answers] == [Change.UNKNOWN_QUEUE, Change.APPLIED, Change.APPLIED]
    assert (await _document(store, lane)).declared == LaneSettings(weight=3)


async def test_override_wins_until_reset(store: Harness) -> None:
    """Field by field, and both layers are shown."""
    await store.queue("q", concurrency=1, lane_concurrency=3)
    await store.add_many(9, lane="acme")
    assert await _claimable(store) == 1
    declared = QueueSettings(concurrency=1, lane_concurrency=3)
    overridden = await _override(store, _Q, QueueSettings(concurrency=2))
    assert overridden.change is Change.APPLIED
    document = await _document(store, _Q)
    assert (document.declared, document.override) == (declared, QueueSettings(concurrency=2))
    assert (document.app, document.version) == (APP, overridden.version)
    assert await _override(store, _Q, document.override) == Changed(Change.UNCHANGED, overridden.version)
    assert await _claimable(store) == 2

    assert (await _override(store, _Q, QueueSettings(concurrency=None))).change is Change.APPLIED
    assert await _claimable(store) == 3, "None says that there is no limit; the lane's is still declared"

    await store.queue("q", concurrency=5, lane_concurrency=4)
    document = await _document(store, _Q)
    assert document.declared == QueueSettings(concurrency=5, lane_concurrency=4)
    assert document.override == QueueSettings(concurrency=None)
    assert await _claimable(store) == 4

    await store.queue("q", concurrency=1)
    assert await _claimable(store) == 9
    assert (await _override(store, _Q, None)).change is Change.APPLIED
    document = await _document(store, _Q)
    assert (document.declared, document.override) == (QueueSettings(concurrency=1), None)
    assert await _claimable(store) == 1


async def test_override_wins_until_reset__as_a_whole(store: Harness) -> None:
    """A new override replaces the one before; bytes are one field."""
    await _override(store, _Q, QueueSettings(concurrency=1))
    await _override(store, _Q, QueueSettings(lane_concurrency=2))
    await store.add_many(3, lane="acme")
    assert (await _document(store, _Q)).override == QueueSettings(lane_concurrency=2)
    assert await _claimable(store) == 2
    await store.declare(_STRIKE, b"declared")
    await _override(store, _STRIKE, b"overridden")
    document = await _document(store, _STRIKE)
    assert (document.declared, document.override) == (b"declared", b"overridden")


async def test_override_wins_until_reset__for_a_lane(store: Harness) -> None:
    lane = Subject(Kind.LANE, "q", "acme")
    await store.lane("q", "acme", concurrency=1)
    await store.add_many(3, lane="acme")
    await _override(store, lane, LaneSettings(concurrency=2))
    assert await _claimable(store) == 2
    await _override(store, lane, None)
    assert await _claimable(store) == 1


async def test_override_is_compare_and_set(store: Harness) -> None:
    before = await _document(store, _Q)
    body = QueueSettings(concurrency=1)
    for expect in (0, before.version - 1, before.version + 1):
        for attempted in (body, None):
            changed = await store.broker.override(_Q, attempted, expect)
            assert changed == Changed(Change.CONFLICT, before.version)
    assert await _document(store, _Q) == before
    assert (await store.broker.override(_Q, body, before.version)).change is Change.APPLIED
    after = await _document(store, _Q)
    assert after.version > before.version
    again = await store.broker.override(_Q, QueueSettings(concurrency=2), before.version)
    assert again == Changed(Change.CONFLICT, after.version)


async def test_override_is_compare_and_set__on_what_a_declaration_changed(store: Harness) -> None:
    read = await _document(store, _Q)
    await store.queue("q", concurrency=5)
    changed = await store.broker.override(_Q, QueueSettings(concurrency=1), read.version)
    assert changed.change is Change.CONFLICT
    assert (await _document(store, _Q)).override is None


async def test_override_is_compare_and_set__on_nothing(store: Harness) -> None:
    assert await store.broker.override(_STRIKE, b"x", 1) == Changed(Change.CONFLICT, 0)
    assert await _found(store, _STRIKE) is None
    racing = await asyncio.gather(*(store.broker.override(_STRIKE, b"%d" % n, 0) for n in range(5)))
    assert sorted(changed.change for changed in racing) == [Change.APPLIED, *[Change.CONFLICT] * 4]
    (winner,) = (n for n, changed in enumerate(racing) if changed.change is Change.APPLIED)
    document = await _document(store, _STRIKE)
    assert (document.declared, document.override) == (None, b"%d" % winner)
    assert document.version == racing[winner].version > 0


async def test_document_without_a_layer_is_gone(store: Harness) -> None:
    for subject, body in ((_STRIKE, b"by hand"), (Subject(Kind.LANE, "q", "acme"), LaneSettings(weight=2))):
        created = await store.broker.override(subject, body, 0)
        assert created.change is Change.APPLIED
        assert (await store.broker.override(subject, None, created.version)).change is Change.APPLIED
        assert await _found(store, subject) is None
        assert (await store.broker.override(subject, body, 0)).change is Change.APPLIED


async def test_document_without_a_layer_is_gone__but_not_a_declared_one(store: Harness) -> None:
    await store.declare(_STRIKE, b"declared")
    await _override(store, _STRIKE, b"overridden")
    assert (await _override(store, _STRIKE, None)).change is Change.APPLIED
    document = await _document(store, _STRIKE)
    assert (document.declared, document.override) == (b"declared", None)


async def test_override_does_not_create_a_queue(store: Harness) -> None:
    new = Subject(Kind.QUEUE, "new")
    assert await store.broker.override(new, QueueSettings(), 0) == Changed(Change.UNKNOWN_QUEUE, 0)
    assert await _found(store, new) is None
    (receipt,) = await store.enqueue(store.job(queue="new"))
    assert (receipt.status, receipt.refusal) == (Status.REFUSED, Refusal.UNKNOWN_QUEUE)


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_documents_page_by_subject(store: Harness, limit: int) -> None:
    """By name, then lane, in the order of code points; each kind by itself."""
    subjects = [
        Subject(Kind.LANE, queue, lane)
        for queue in ("q", "a", "B")
        for lane in ("z", "é", "A", "a b", "日本")
    ]
    for queue in ("a", "B"):
        await store.queue(queue)
    for subject in subjects:
        await store.declare(subject, LaneSettings(weight=2))
    await store.declare(Subject(Kind.TASK, "q"), b"task")
    seen: list[Subject] = []
    after: Subject | None = None
    while page := await store.broker.documents(Kind.LANE, after, limit):
        assert len(page) <= limit
        seen += [document.subject for document in page]
        after = seen[-1]
    assert seen == sorted(subjects)
    queues = await store.broker.documents(Kind.QUEUE)
    assert [document.subject.name for document in queues] == ["B", "a", "q"]


async def test_documents_page_by_subject__of_a_place_that_is_gone(store: Harness) -> None:
    for name in ("a", "c"):
        await store.declare(Subject(Kind.TASK, name), b"{}")
    page = await store.broker.documents(Kind.TASK, Subject(Kind.TASK, "b"))
    assert [document.subject.name for document in page] == ["c"]


async def test_documents_page_by_subject__with_bytes_as_they_are(store: Harness) -> None:
    every_byte = bytes(range(256))
    for kind in (kind for kind in Kind if kind not in (Kind.QUEUE, Kind.LANE)):
        subject = Subject(kind, 'it\'s "{x}" \\ %s')
        await store.declare(subject, every_byte)
        await _override(store, subject, b"")
        (document,) = await store.broker.documents(kind)
        assert (document.subject, document.declared, document.override) == (subject, every_byte, b"")
