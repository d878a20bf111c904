"""Settings: documents in two layers, and the policies they amount to."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from windlass.broker.sqlite import filing
from windlass.broker.sqlite.records import pack
from windlass.broker.sqlite.snapshot import SQL as STORE
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.settings import (
    Body,
    Change,
    Changed,
    Declaration,
    Document,
    Kind,
    LaneSettings,
    QueuePolicy,
    QueueSettings,
    Subject,
    overlay,
    queue_policy,
)
from windlass.core.state import UNFINISHED

SQL = statements("settings")
_queue_settings = msgspec.msgpack.Decoder(QueueSettings)
_lane_settings = msgspec.msgpack.Decoder(LaneSettings)


@dataclass(slots=True)
class Layers:
    """A settings document: what the code declared, and what operators set instead."""

    declared: Body | None = None
    override: Body | None = None
    app: str = ""
    revision: int = 0
    version: int = 0


def declare(tx: Transaction, declarations: Sequence[Declaration]) -> tuple[Changed, ...]:
    """Declare documents in code, each by itself."""
    return tuple(_declare_one(tx, declaration) for declaration in declarations)


def _declare_one(tx: Transaction, new: Declaration) -> Changed:
    old = _layers(tx, new.subject) or Layers()
    if old.declared is not None:
        if old.app != new.app:
            return Changed(Change.OTHER_APP, old.version)
        if old.revision > new.revision:
            return Changed(Change.NEWER_REVISION, old.version)
        if old.declared == new.body:
            old.revision = new.revision
            _save(tx, new.subject, old)
            return Changed(Change.UNCHANGED, old.version)
    refused = _refusal(tx, new.subject, new.body, old.override)
    if refused is not None:
        return Changed(refused, old.version)
    old.declared, old.app, old.revision = new.body, new.app, new.revision
    return _apply(tx, new.subject, old)


def override(tx: Transaction, subject: Subject, body: Body | None, expect: int) -> Changed:
    """Set or reset the operators' layer."""
    layers = _layers(tx, subject) or Layers()
    if layers.version != expect:
        return Changed(Change.CONFLICT, layers.version)
    if layers.override == body:
        return Changed(Change.UNCHANGED, layers.version)
    if subject.kind is Kind.QUEUE and tx.queue(subject.name) is None:
        return Changed(Change.UNKNOWN_QUEUE, layers.version)
    refused = _refusal(tx, subject, layers.declared, body)
    if refused is not None:
        return Changed(refused, layers.version)
    layers.override = body
    return _apply(tx, subject, layers)


def documents(tx: Snapshot, kind: Kind, after: Subject | None, limit: int) -> tuple[Document, ...]:
    """Documents of a kind, by subject."""
    if after is not None and after.kind != kind:
        if after.kind > kind:
            return ()
        after = None
    place = (None, None) if after is None else (after.name, after.lane)
    rows = tx.all(SQL["all_layers"], (kind.value, *place, limit))
    return tuple(
        Document(
            subject=Subject(kind, name, lane),
            declared=_read(kind, declared),
            override=_read(kind, override),
            app=app,
            revision=revision,
            version=version,
        )
        for name, lane, declared, override, app, revision, version in rows
    )


def _layers(tx: Snapshot, subject: Subject) -> Layers | None:
    row = tx.one(SQL["layers"], (subject.kind.value, subject.name, subject.lane))
    if row is None:
        return None
    declared, override, app, revision, version = row
    return Layers(_read(subject.kind, declared), _read(subject.kind, override), app, revision, version)


def _save(tx: Transaction, subject: Subject, layers: Layers) -> None:
    values = (_write(layers.declared), _write(layers.override), layers.app, layers.revision, layers.version)
    tx.run(SQL["save_layers"], (subject.kind.value, subject.name, subject.lane, *values))


def _read(kind: Kind, record: bytes | None) -> Body | None:
    if record is None:
        return None
    if kind is Kind.QUEUE:
        return _queue_settings.decode(record)
    return _lane_settings.decode(record) if kind is Kind.LANE else record


def _write(body: Body | None) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else pack(body)


def _refusal(tx: Transaction, subject: Subject, declared: Body | None, over: Body | None) -> Change | None:
    """Why two layers cannot be in force together."""
    queue = tx.queue(subject.name) if subject.kind in (Kind.QUEUE, Kind.LANE) else None
    if subject.kind is Kind.LANE and queue is None:
        return Change.UNKNOWN_QUEUE
    if subject.kind is not Kind.QUEUE or queue is None:
        return None
    if _policy(tx, declared, over).layout == queue.policy.layout:
        return None
    return Change.IN_USE if any(tx.counted(queue, state) for state in UNFINISHED) else None


def _policy(tx: Transaction, declared: Body | None, over: Body | None) -> QueuePolicy:
    assert declared is None or isinstance(declared, QueueSettings)
    assert over is None or isinstance(over, QueueSettings)
    return queue_policy(overlay(declared, over), tx.retention)


def _apply(tx: Transaction, subject: Subject, layers: Layers) -> Changed:
    """Put a changed document in force."""
    layers.version = tx.new_version()
    if layers.declared is None and layers.override is None:
        tx.run(SQL["drop_layers"], (subject.kind.value, subject.name, subject.lane))
    else:
        _save(tx, subject, layers)
    if subject.kind is Kind.QUEUE:
        _apply_queue(tx, subject.name, layers)
    elif subject.kind is Kind.LANE:
        _apply_lane(tx, subject)
    return Changed(Change.APPLIED, layers.version)


def _apply_queue(tx: Transaction, name: str, layers: Layers) -> None:
    policy = _policy(tx, layers.declared, layers.override)
    queue = tx.queue(name)
    if queue is None:
        tx.run(STORE["add_queue"], (name,))
        queue = tx.queue(name)
        assert queue is not None
    if queue.policy.layout != policy.layout:
        # Nothing is filed (see _refusal), so nobody loses a place; clocks of another layout mean nothing.
        filing.clear_rings(tx, queue)
    queue.policy = policy
    tx.renew_lanes(queue)
    filing.refresh_all(tx, queue)
    filing.wake_if_claimable(tx, queue)


def _apply_lane(tx: Transaction, subject: Subject) -> None:
    queue = tx.queue(subject.name)
    assert queue is not None
    filing.become_laned(tx, queue)
    tx.renew_lanes(queue)
    filing.refresh(tx, queue, tx.lane(queue, subject.lane))
    filing.wake_if_claimable(tx, queue)
