"""What verbs are called with, as scripts read it. Pure: both transports use it."""

import struct
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from windlass.broker.redis.records import (
    CODES,
    blob,
    body_end,
    new_id,
    new_ids,
    pack,
    pack_id,
    write_body,
    write_tags,
)
from windlass.core.group import too_large
from windlass.core.job import Mode, NewJob, OnFailure, Refusal
from windlass.core.lease import Ask
from windlass.core.operate import Edit, Target
from windlass.core.outcome import Cause, Outcome
from windlass.core.session import LOG_LINE_CHARS, LOG_LINES, Beat, Note
from windlass.core.settlement import Settlement
from windlass.core.units import Fence, JobId

_MODES = {Mode.IGNORE: 0, Mode.REPLACE: 1, Mode.THROTTLE: 2}
_POLICIES = {OnFailure.CANCEL: b"c", OnFailure.IGNORE: b"i", OnFailure.RUN: b"r"}
Row = list[Any]


def calls(group: Sequence[NewJob], parent: JobId = "") -> list[Row]:
    """The jobs of a group."""
    return [_call(job, parent) for job in group]


_SIMPLE = struct.Struct(">16sHIII")
_stamp = attrgetter("queue", "task", "lane", "priority", "max_attempts", "tags", "revision")


def simple_jobs(groups: Sequence[Sequence[NewJob]]) -> tuple[bytes, bytes] | None:
    """Groups of jobs that ask for nothing special, as bytes and the stamps that many of them share (see
    `lua/enqueue.lua`); None if one does.
    """
    jobs = groups[0] if len(groups) == 1 else [job for group in groups for job in group]
    ids = new_id(jobs[0].id) if len(jobs) == 1 else new_ids([job.id for job in jobs])
    if ids is None:
        return None
    stamps: dict[tuple[Any, ...], int] = {}
    parts, at, record = [b"\1"], 0, _SIMPLE.pack
    for job in jobs:
        if job.key is not None or job.delay or job.after or job.flow:
            return None
        if job.run_at is not None or job.expires is not None:
            return None
        stamp = _stamp(job)
        number = stamps.get(stamp)
        if number is None:
            number = stamps[stamp] = len(stamps) + 1
        payload = job.payload
        size = len(payload)
        text = _headers(job.headers) if job.headers else b""
        extra = len(text)
        end, between = body_end(4 + extra + size)
        parts += (
            record(ids[at : at + 16], number, size, 4 + extra + size + end, end << 24 | extra),
            text,
            payload,
            ids[at + 12 : at + 13],
            between,
            ids[at + 13 : at + 14],
        )
        at += 16
    rows = [(*stamp[:5], write_tags(stamp[5]), *stamp[6:]) for stamp in stamps]
    return b"".join(parts), pack(([len(group) for group in groups], rows))


def _call(job: NewJob, parent: JobId) -> Row:
    raw = new_id(job.id)
    return [
        blob(raw),
        job.queue,
        job.task,
        job.lane,
        job.priority,
        job.max_attempts,
        job.delay,
        False if job.run_at is None else job.run_at,
        False if job.expires is None else job.expires,
        False if job.key is None else job.key,
        _MODES[job.mode],
        job.window,
        write_tags(job.tags),
        job.revision,
        job.flow,
        parent,
        _after(job) if job.after else False,
        blob(write_body(job.headers, job.payload, raw)),
        len(job.payload),
    ]


def _after(job: NewJob) -> msgspec.Raw:
    return blob(b"".join(pack_id(edge.parent) + _POLICIES[edge.on_failure] for edge in job.after))


def ask(wish: Ask) -> Row:
    """A request for work."""
    return [
        wish.queues,
        wish.slots,
        wish.limit,
        False if wish.session is None else wish.session,
        wish.seq or 0,
        False if wish.visibility is None else wish.visibility,
        wish.alone,
        wish.max_bytes,
        wish.draw,
        max(wish.slots, wish.soon),
    ]


_DONE = struct.Struct(">16sQQB")
PLAIN = b"\1"
"""The first byte of settlements that are all plainly done."""


def settlements(items: Sequence[Settlement]) -> tuple[bytes, tuple[bytes, ...]]:
    """Holders' words, and arguments that belong to them. Where all are plainly done, as bytes."""
    ids = new_ids([item.job for item in items])
    if ids is None:
        return pack([settlement(each) for each in items]), ()
    parts, results, at, record, done = [PLAIN], list[bytes](), 0, _DONE.pack, Outcome.DONE
    for item in items:
        if item.outcome is not done or item.error is not None or item.spawn or item.hold is not None:
            return pack([settlement(each) for each in items]), ()
        result, runtime = item.result, item.runtime
        if result is not None:
            results.append(result)
        has_result = result is not None
        parts.append(record(ids[at : at + 16], item.fence, 0 if runtime is None else runtime + 1, has_result))
        at += 16
    return b"".join(parts), tuple(results)


def settlement(item: Settlement) -> Row:
    """A holder's word."""
    return [
        blob(pack_id(item.job)),
        item.fence,
        item.outcome.value,
        item.delay,
        False if item.runtime is None else item.runtime,
        False if item.error is None else blob(msgspec.json.encode(item.error)),
        False if item.result is None else blob(item.result),
        False if item.hold is None else item.hold.key,
        "" if item.hold is None else item.hold.reason,
        _spawned(item) if item.spawn else False,
    ]


def _spawned(item: Settlement) -> list[Row] | str:
    """Children; where there are too many, the word for it: whether the lease is live is asked first."""
    return Refusal.GROUP_TOO_LARGE.value if too_large(item.spawn) else calls(item.spawn, item.job)


def beat(one: Beat) -> Row:
    """A sign of life."""
    info = one.open
    if info is None:
        return [one.session, one.memory, False, 0, ()]
    return [
        one.session,
        one.memory,
        blob(msgspec.json.encode(info)),
        info.ttl,
        tuple(dict.fromkeys(info.queues)),
    ]


def session_end(session: str, cause: Cause, started: Collection[tuple[JobId, Fence]]) -> Row:
    """The end of a session."""
    had_started = b"".join(pack_id(job) + fence.to_bytes(7, "big") for job, fence in started)
    return [session, cause.kind.value, blob(msgspec.json.encode(cause)), blob(had_started)]


def note(said: Note) -> Row:
    """Something that a running job says."""
    memo = said.memo
    return [
        blob(pack_id(said.job)),
        said.fence,
        False if said.extend is None else said.extend,
        False if said.permille is None else said.permille,
        said.message,
        [line[:LOG_LINE_CHARS] for line in said.logs[-LOG_LINES:]],
        False if memo is None else memo[0],
        False if memo is None else blob(memo[1]),
    ]


def target(wish: Target | Edit) -> Row:
    """A job and the state in which it was seen."""
    return [blob(pack_id(wish.job)), -1 if wish.expect is None else CODES[wish.expect]]


def edit(wish: Edit) -> Row:
    """New values for a job."""
    return [
        *target(wish),
        False if wish.payload is None else blob(wish.payload),
        False if wish.headers is None else blob(_headers(wish.headers)),
        False if wish.tags is None else write_tags(wish.tags),
        False if wish.priority is None else wish.priority,
        False if wish.max_attempts is None else wish.max_attempts,
    ]


def _headers(headers: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(dict(headers)) if headers else b""
