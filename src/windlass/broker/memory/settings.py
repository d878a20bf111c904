"""Settings: documents in two layers, and the policies they amount to."""

from collections.abc import Sequence

from windlass.broker.memory import filing
from windlass.broker.memory.namespace import Layers, Namespace, Queue
from windlass.core.settings import (
    Body,
    Change,
    Changed,
    Declaration,
    Document,
    Kind,
    QueuePolicy,
    QueueSettings,
    Subject,
    lane_policy,
    overlay,
    queue_policy,
)
from windlass.core.state import UNFINISHED


def declare(ns: Namespace, declarations: Sequence[Declaration]) -> tuple[Changed, ...]:
    """Declare documents in code, each by itself."""
    return tuple(_declare_one(ns, declaration) for declaration in declarations)


def _declare_one(ns: Namespace, new: Declaration) -> Changed:
    old = ns.layers.get(new.subject, Layers())
    if old.declared is not None:
        if old.app != new.app:
            return Changed(Change.OTHER_APP, old.version)
        if old.revision > new.revision:
            return Changed(Change.NEWER_REVISION, old.version)
        if old.declared == new.body:
            old.revision = new.revision
            return Changed(Change.UNCHANGED, old.version)
    refused = _refusal(ns, new.subject, new.body, old.override)
    if refused is not None:
        return Changed(refused, old.version)
    old.declared, old.app, old.revision = new.body, new.app, new.revision
    return _apply(ns, new.subject, old)


def override(ns: Namespace, subject: Subject, body: Body | None, expect: int) -> Changed:
    """Set or reset the operators' layer."""
    layers = ns.layers.get(subject, Layers())
    if layers.version != expect:
        return Changed(Change.CONFLICT, layers.version)
    if layers.override == body:
        return Changed(Change.UNCHANGED, layers.version)
    if subject.kind is Kind.QUEUE and subject.name not in ns.queues:
        return Changed(Change.UNKNOWN_QUEUE, layers.version)
    refused = _refusal(ns, subject, layers.declared, body)
    if refused is not None:
        return Changed(refused, layers.version)
    layers.override = body
    return _apply(ns, subject, layers)


def documents(ns: Namespace, kind: Kind, after: Subject | None, limit: int) -> tuple[Document, ...]:
    """Documents of a kind, by subject."""
    subjects = sorted(s for s in ns.layers if s.kind is kind and (after is None or s > after))
    return tuple(_document(subject, ns.layers[subject]) for subject in subjects[:limit])


def _document(subject: Subject, layers: Layers) -> Document:
    return Document(
        subject=subject,
        declared=layers.declared,
        override=layers.override,
        app=layers.app,
        revision=layers.revision,
        version=layers.version,
    )


def _refusal(ns: Namespace, subject: Subject, declared: Body | None, over: Body | None) -> Change | None:
    """Why two layers cannot be in force together."""
    if subject.kind is Kind.LANE and subject.name not in ns.queues:
        return Change.UNKNOWN_QUEUE
    queue = ns.queues.get(subject.name)
    if subject.kind is not Kind.QUEUE or queue is None:
        return None
    in_use = any(job.state in UNFINISHED and job.asked.queue == queue.name for job in ns.jobs.values())
    changes = _policy(ns, declared, over).layout != queue.policy.layout
    return Change.IN_USE if in_use and changes else None


def _policy(ns: Namespace, declared: Body | None, over: Body | None) -> QueuePolicy:
    assert declared is None or isinstance(declared, QueueSettings)
    assert over is None or isinstance(over, QueueSettings)
    return queue_policy(overlay(declared, over), ns.retention)


def _apply(ns: Namespace, subject: Subject, layers: Layers) -> Changed:
    """Put a changed document in force."""
    layers.version = ns.new_version()
    ns.layers[subject] = layers
    if layers.declared is None and layers.override is None:
        del ns.layers[subject]
    if subject.kind is Kind.QUEUE:
        _apply_queue(ns, subject.name, layers)
    elif subject.kind is Kind.LANE:
        _apply_lane(ns, ns.queues[subject.name], subject.lane)
    return Changed(Change.APPLIED, layers.version)


def _apply_queue(ns: Namespace, name: str, layers: Layers) -> None:
    policy = _policy(ns, layers.declared, layers.override)
    queue = ns.queues.setdefault(name, Queue(name, policy))
    if queue.policy.layout != policy.layout:
        # Nothing is filed (see _refusal), so nobody loses a place; clocks of another layout mean nothing.
        queue.rings.clear()
    queue.policy = policy
    for lane in queue.lanes.values():
        lane.policy = lane_policy(filing.lane_settings(ns, queue, lane.name), policy)
    filing.refresh_all(ns, queue)
    filing.wake_if_claimable(ns, queue)


def _apply_lane(ns: Namespace, queue: Queue, name: str) -> None:
    filing.become_laned(ns, queue)
    lane = filing.lane_of(ns, queue, name)
    lane.policy = lane_policy(filing.lane_settings(ns, queue, name), queue.policy)
    filing.refresh(ns, queue, lane)
    filing.wake_if_claimable(ns, queue)
