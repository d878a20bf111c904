"""What verbs are called with, as scripts read it. Pure: both transports use it."""

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import msgspec

from windlass.broker.redis.codes import MODES, POLICIES, STATE_CODES
from windlass.broker.redis.records import blob, body_end, new_ids, pack, pack_id, pack_ids, write_tags
from windlass.core.group import too_large
from windlass.core.job import NewJob, Refusal
from windlass.core.lease import Ask
from windlass.core.operate import Edit, Target
from windlass.core.outcome import Cause, Error, Outcome
from windlass.core.session import LOG_LINE_CHARS, LOG_LINES, Beat, Note
from windlass.core.settlement import Settlement
from windlass.core.units import Fence, JobId

_MODES = {mode: code for code, mode in enumerate(MODES)}
_LETTERS = {policy: letter for letter, policy in POLICIES.items()}
_kind = attrgetter("queue", "task", "lane", "priority", "max_attempts", "tags", "revision", "flow")
_NOBODY: Mapping[JobId, Error] = MappingProxyType({})
Row = list[Any]


def calls(
    groups: Sequence[Sequence[NewJob]], parent: JobId = "", *, dead: Mapping[JobId, Error] = _NOBODY
) -> tuple[list[Any], bytes, bytes]:
    """Groups of calls, their ids and their bodies (see `lua/parts/calls.lua`). What many calls share is sent
    once. `dead` are those that are born dead, and why.
    """
    jobs = groups[0] if len(groups) == 1 else [job for group in groups for job in group]
    ids = new_ids([job.id for job in jobs])
    kinds: dict[tuple[Any, ...], int] = {}
    rows: list[Row] = []
    bodies: list[bytes] = []
    at = 0
    for job in jobs:
        kind = _kind(job)
        number = kinds.get(kind)
        if number is None:
            number = kinds[kind] = len(kinds) + 1
        body = write_body(job.headers, job.payload, ids[at + 12 : at + 14])
        at += 16
        row: Row = [number, len(job.payload), len(body)]
        if (
            parent
            or job.delay
            or job.run_at is not None
            or job.expires is not None
            or job.key is not None
            or job.after
            or job.id in dead
        ):
            row += _more(job, parent)
            if job.id in dead:
                row.append(blob(msgspec.json.encode(dead[job.id])))
        rows.append(row)
        bodies.append(body)
    shared = [[*kind[:5], write_tags(kind[5]), *kind[6:]] for kind in kinds]
    return [[len(group) for group in groups], shared, rows], ids, b"".join(bodies)


def packet(group: Sequence[NewJob], parent: JobId = "") -> list[Any]:
    """One group of calls inside of another argument."""
    rows, ids, bodies = calls([group], parent)
    return [*rows, blob(ids), blob(bodies)]


def _more(job: NewJob, parent: JobId) -> Row:
    after = b"".join(pack_id(edge.parent) + _LETTERS[edge.on_failure] for edge in job.after)
    return [
        job.delay,
        False if job.run_at is None else job.run_at,
        False if job.expires is None else job.expires,
        False if job.key is None else job.key,
        _MODES[job.mode],
        job.window,
        blob(after) if after else False,
        parent,
    ]


def write_body(headers: Mapping[str, str], payload: bytes, mark: bytes) -> bytes:
    """A body: the length of its end (a byte) and of the headers (3), the headers, the payload, the end."""
    text = _headers(headers) if headers else b""
    extra = len(text)
    end, between = body_end(4 + extra + len(payload))
    first = (end << 24 | extra).to_bytes(4, "big")
    return b"%b%b%b%b%b%b" % (first, text, payload, mark[:1], between, mark[1:])


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


def settlements(items: Sequence[Settlement]) -> tuple[bytes, bytes]:
    """Settlements, and their jobs (see `lua/verbs/settle.lua`)."""
    done = Outcome.DONE
    rows: list[Row] = []
    for item in items:
        result = item.result
        row = [
            item.fence,
            False if item.runtime is None else item.runtime,
            False if result is None else blob(result),
        ]
        if item.outcome is not done or item.error is not None or item.spawn:
            row += _unlike_done(item)
        rows.append(row)
    return pack(rows), pack_ids([item.job for item in items])


def _unlike_done(item: Settlement) -> Row:
    return [
        item.outcome.value,
        item.delay,
        False if item.error is None else blob(msgspec.json.encode(item.error)),
        False if item.hold is None else item.hold.key,
        "" if item.hold is None else item.hold.reason,
        _spawned(item) if item.spawn else False,
    ]


def _spawned(item: Settlement) -> list[Any] | str:
    """The children; or why there are too many, which the script answers only if the lease is live."""
    return Refusal.GROUP_TOO_LARGE.value if too_large(item.spawn) else packet(item.spawn, item.job)


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
    return [blob(pack_id(wish.job)), -1 if wish.expect is None else STATE_CODES[wish.expect]]


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
