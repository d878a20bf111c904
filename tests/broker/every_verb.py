"""A call of every verb of the contract, each of which may be made at any time and as often as one likes."""

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from windlass.broker.contract import Broker
from windlass.conformance.harness import new_id
from windlass.core.event import FROM_START
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.operate import Edit, Target
from windlass.core.outcome import Cause, CauseKind, Error, Outcome
from windlass.core.query import JobQuery
from windlass.core.session import Beat, Note, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.core.take import Source, Take
from windlass.core.timetable import Fire, NewSchedule
from windlass.core.units import SECOND

Call: TypeAlias = Callable[[Broker], Awaitable[Any]]

APP: Final = "every verb"
QUEUE: Final = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app=APP)
_LANED: Final = Declaration(
    subject=Subject(Kind.QUEUE, "laned"), body=QueueSettings(lane_concurrency=1), app=APP
)
_DEADLINE: Final = Ask(queues=("q", "laned"), slots=10, limit=10, visibility=SECOND)
_numbers = itertools.count()


def new_job(queue: str = "q", **more: Any) -> NewJob:
    """A job whose payload no message may show."""
    return NewJob(id=new_id(), task="t", queue=queue, payload=b"secret", **more)


def _target() -> list[Target]:
    return [Target(new_id()), Target(new_id(), State.READY)]


def _take(count: int, **more: Any) -> Take:
    """One that moves the offset of a source of its own."""
    groups = [[new_job()] for _ in range(count)]
    return Take(source=Source(f"s/{next(_numbers)}"), expect=None, then="1", groups=groups, **more)


def _born_dead() -> Take:
    job = new_job()
    return Take(
        source=Source(f"s/{next(_numbers)}"),
        expect=None,
        then="1",
        groups=[[job]],
        dead={job.id: Error(type="E")},
    )


def _settlement(outcome: Outcome, **more: Any) -> Settlement:
    """Of a lease that was never given."""
    return Settlement(job=new_id(), fence=1, outcome=outcome, **more)


def _ask() -> Ask:
    return Ask(session=f"w{next(_numbers)}", seq=1, queues=("q", "laned"), slots=5, limit=10)


def _schedule(name: str = "s") -> NewSchedule:
    return NewSchedule(name=name, spec=b"spec %d" % next(_numbers), next_at=1, app=APP)


VERBS: Final[Mapping[str, Call]] = {
    "enqueue": lambda broker: broker.enqueue([[new_job()]]),
    "enqueue: many": lambda broker: broker.enqueue([[new_job() for _ in range(20)]]),
    "enqueue: in lanes": lambda broker: broker.enqueue([[new_job("laned", lane="a", key="k", delay=1)]]),
    "claim": lambda broker: broker.claim(_ask()),
    "claim: until a deadline": lambda broker: broker.claim(_DEADLINE),
    "settle": lambda broker: broker.settle([_settlement(Outcome.DONE, result=b"r")]),
    "settle: many": lambda broker: broker.settle([_settlement(Outcome.DONE) for _ in range(20)]),
    "settle: and ask": lambda broker: broker.settle([_settlement(Outcome.RETRY, delay=1)], _ask()),
    "settle: hold": lambda broker: broker.settle([_settlement(Outcome.HOLD, hold=HoldKey("k", "why"))]),
    "settle: with children": lambda broker: broker.settle([_settlement(Outcome.DONE, spawn=(new_job(),))]),
    "beat": lambda broker: broker.beat([Beat(session="s", memory=1)]),
    "beat: open": lambda broker: broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))]),
    "end_session": lambda broker: broker.end_session("other", Cause(CauseKind.STOP, "")),
    "annotate": lambda broker: broker.annotate([Note(job=new_id(), fence=1, permille=5, memo=("m", b"x"))]),
    "sweep": lambda broker: broker.sweep(limit=10),
    "wait": lambda broker: broker.wait(["q"], 0.05),
    "watch": lambda broker: broker.watch([new_id()], 0.05),
    "events": lambda broker: broker.events(FROM_START, 10, 0.0),
    "take": lambda broker: broker.take(_take(1)),
    "take: many": lambda broker: broker.take(_take(20)),
    "take: born dead": lambda broker: broker.take(_born_dead()),
    "offsets": lambda broker: broker.offsets(),
    "declare_schedule": lambda broker: broker.declare_schedule(_schedule()),
    "override_schedule": lambda broker: broker.override_schedule("s", b"spec", 1, 1),
    "delete_schedule": lambda broker: broker.delete_schedule("none"),
    "pause_schedule": lambda broker: broker.pause_schedule("s", paused=False),
    "fire": lambda broker: broker.fire(Fire(name="s", version=1, expect=1, then=2, jobs=(new_job(),))),
    "schedules": lambda broker: broker.schedules(),
    "cancel": lambda broker: broker.cancel(_target()),
    "replay": lambda broker: broker.replay(_target()),
    "discard": lambda broker: broker.discard(_target()),
    "prune": lambda broker: broker.prune(_target()),
    "edit": lambda broker: broker.edit([Edit(job=new_id(), payload=b"secret", priority=5)]),
    "purge": lambda broker: broker.purge("q", State.READY, 10),
    "purge: finished": lambda broker: broker.purge("q", State.DONE, 10),
    "unhold": lambda broker: broker.unhold("k", 10),
    "pause": lambda broker: broker.pause("laned", "b"),
    "resume": lambda broker: broker.resume("laned"),
    "declare": lambda broker: broker.declare([QUEUE, _LANED]),
    "override": lambda broker: broker.override(Subject(Kind.SECRET, "s"), b"secret", 0),
    "documents": lambda broker: broker.documents(Kind.QUEUE),
    "get": lambda broker: broker.get([new_id()]),
    "list": lambda broker: broker.list(JobQuery()),
    "list: filtered": lambda broker: broker.list(
        JobQuery(queue="q", states=frozenset({State.READY}), task="t")
    ),
    "list: of a flow": lambda broker: broker.list(JobQuery(flow="f")),
    "flows": lambda broker: broker.flows(),
    "counts": lambda broker: broker.counts(),
    "lanes": lambda broker: broker.lanes("laned"),
    "sessions": lambda broker: broker.sessions(),
    "explain": lambda broker: broker.explain(new_id()),
    "warnings": lambda broker: broker.warnings(),
}
"""By the name of the verb; what follows a colon says which form of it."""


def verb_of(name: str) -> str:
    """The verb that an entry of the table calls."""
    return name.partition(":")[0]


async def call_all(broker: Broker) -> None:
    """Call every verb, each of which must answer."""
    await broker.declare([QUEUE, _LANED])
    for call in VERBS.values():
        await call(broker)


async def told_by_all(broker: Broker) -> dict[str, BaseException]:
    """What the calls raise that raise something."""
    told: dict[str, BaseException] = {}
    for name, call in VERBS.items():
        try:
            await call(broker)
        except BaseException as error:  # noqa: BLE001 - which it is is the question
            told[name] = error
    return told
