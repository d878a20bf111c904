"""Rules for operators: jobs, queues, settings."""

from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from windlass.conformance.machine import draws
from windlass.conformance.machine.base import Machine
from windlass.conformance.machine.ledger.operate import (
    cancelled,
    discarded,
    edited,
    pruned,
    purged,
    replayed,
    unheld,
)
from windlass.conformance.machine.universe import APPS, HOLD_KEYS, LANES, NOWHERE, QUEUES, job_id
from windlass.core.operate import Edit, Target
from windlass.core.settings import Body, Kind, LaneSettings, QueueSettings, Subject
from windlass.core.state import TERMINAL, WAITING, State

Said: TypeAlias = dict[str, Any] | bytes | None
_jobs = draws.of_machine(draws.jobs)
_expected = draws.mostly(None, *State)
_queues = st.sampled_from((*QUEUES * 3, NOWHERE))
_targets = st.lists(st.tuples(_jobs, _expected), min_size=1, max_size=2)
_NO_QUEUE = Subject(Kind.QUEUE, NOWHERE)
_subjects = st.sampled_from(
    (
        *(Subject(Kind.QUEUE, queue) for queue in QUEUES),
        _NO_QUEUE,
        *(Subject(Kind.LANE, "laned", lane) for lane in LANES),
        *(
            Subject(Kind.LANE, NOWHERE, "a"),
            Subject(Kind.LANE, "plain", "a"),
            Subject(Kind.LANE, "ordered", "b"),
        ),
        *(Subject(Kind.TASK, "t"), Subject(Kind.STRIKE, "all")),
    )
)


@st.composite
def _documents(draw: Any, *, override: bool) -> tuple[Subject, Said]:
    """A subject and what is said of it; None resets an override. Nobody declares the queue `nowhere`."""
    subject: Subject = draw(_subjects)
    if subject == _NO_QUEUE and not override:
        subject = Subject(Kind.QUEUE, QUEUES[0])
    if override and draw(st.sampled_from((False, False, True))):
        return subject, None
    match subject.kind:
        case Kind.QUEUE:
            return subject, draw(draws.queue_settings(subject.name))
        case Kind.LANE:
            return subject, draw(draws.lane_settings)
        case _:
            return subject, draw(st.sampled_from((b"{}", b"{1}")))


def _body(subject: Subject, said: Said) -> Body | None:
    if isinstance(said, dict):
        return (QueueSettings if subject.kind is Kind.QUEUE else LaneSettings)(**said)
    return said


class OperateJobs(Machine):
    """Cancel, replay, discard, prune, edit, purge, unhold."""

    @rule(act=st.sampled_from(("cancel", "replay", "discard", "prune")), jobs=_targets)
    def operate(self, act: str, jobs: list[tuple[int, State | None]]) -> None:
        """Cancel jobs, replay or discard dead letters, prune finished jobs."""
        self._operate(act, [Target(job_id(number), expect) for number, expect in jobs])

    @rule(act=st.sampled_from(("cancel", "replay", "discard", "prune")))
    def operate_on_all(self, act: str) -> None:
        """Cancel what runs; replay or discard what is dead; prune what has ended; twice at once."""
        states = {"cancel": {State.RUNNING}, "prune": TERMINAL}.get(act, {State.DEAD})
        jobs = [Target(view.id) for view in self.ledger.last.listed if view.state in states]
        self._operate(act, [*jobs, *jobs])

    def _operate(self, act: str, targets: list[Target]) -> None:
        match act:
            case "cancel":
                cancelled(self.ledger, targets, self.on(act, lambda broker: broker.cancel(targets)))
            case "replay":
                replayed(self.ledger, targets, self.on(act, lambda broker: broker.replay(targets)))
            case "prune":
                pruned(self.ledger, targets, self.on(act, lambda broker: broker.prune(targets)))
            case _:
                discarded(self.ledger, targets, self.on(act, lambda broker: broker.discard(targets)))

    @rule(
        job=_jobs,
        expect=_expected,
        changes=st.fixed_dictionaries(
            {},
            optional={
                "priority": st.sampled_from((-5, 0, 5)),
                "max_attempts": st.sampled_from((1, 3)),
                "payload": st.just(b"edited"),
                "tags": st.just(("edited",)),
                "headers": st.just({"edited": "yes"}),
            },
        ),
    )
    def edit(self, job: int, expect: State | None, changes: dict[str, Any]) -> None:
        """Edit a job."""
        edits = [Edit(job=job_id(job), expect=expect, **changes)]
        edited(self.ledger, edits, self.on("edit", lambda broker: broker.edit(edits)))

    @rule(queue=_queues, state=st.sampled_from(sorted(WAITING | TERMINAL)), limit=st.sampled_from((1, 100)))
    def purge(self, queue: str, state: State, limit: int) -> None:
        """Purge a queue."""
        self.to_the_end("purge", lambda broker: broker.purge(queue, state, limit))
        purged(self.ledger, queue, state)

    @precondition(lambda self: self.held())
    @rule(key=st.sampled_from(HOLD_KEYS), limit=st.sampled_from((1, 100)))
    def unhold(self, key: str, limit: int) -> None:
        """Free held jobs."""
        self.to_the_end("unhold", lambda broker: broker.unhold(key, limit))
        unheld(self.ledger, key)

    def held(self) -> bool:
        """Whether a job is held."""
        return any(view.held is not None for view in self.ledger.last.listed)


class OperateQueues(OperateJobs):
    """Pause and resume, declare and override."""

    @rule(queue=_queues, lane=draws.mostly(None, *LANES))
    def pause(self, queue: str, lane: str | None) -> None:
        """Pause a queue or a lane, or let go on whatever is paused."""
        if self.ledger.settings.paused:
            self._resume_all()
            return
        answer = self.on("pause", lambda broker: broker.pause(queue, lane))
        self.ledger.settings.paused_or_resumed(queue, lane, paused=True, answer=answer)

    def _resume_all(self) -> None:
        for queue, lane in (*self.ledger.settings.paused, (NOWHERE, None), ("plain", "a")):
            answer = self.on("resume", lambda broker, q=queue, at=lane: broker.resume(q, at))
            self.ledger.settings.paused_or_resumed(queue, lane, paused=False, answer=answer)

    @rule(document=_documents(override=False), app=draws.mostly(*APPS), revision=st.integers(0, 1))
    def declare_one(self, document: tuple[Subject, Said], app: str, revision: int) -> None:
        """Declare a document in code."""
        subject, said = document
        body = _body(subject, said)
        assert body is not None
        self.declare([(subject, body)], app, revision)

    @rule(document=_documents(override=True), off=draws.mostly(0, 1))
    def override(self, document: tuple[Subject, Said], off: int) -> None:
        """Override a document, or reset the override; `off` by its version it is refused."""
        subject, said = document
        body = _body(subject, said)
        expect = self.ledger.settings.version(subject) + off
        changed = self.on("override", lambda broker: broker.override(subject, body, expect))
        if self.ledger.settings.overridden(subject, body, expect, changed):
            self.restated(subject)
