"""Records as the scripts keep them: heads, tombstones, deliveries, policies; and ids as 16 bytes."""

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from windlass.core.state import State
from windlass.errors import ContractError

STATES: Final[tuple[State, ...]] = (
    State.BLOCKED,
    State.SCHEDULED,
    State.READY,
    State.RUNNING,
    State.DONE,
    State.DEAD,
    State.CANCELLED,
)
CODES: Final[dict[State, int]] = {state: code for code, state in enumerate(STATES)}

FORMAT: Final = 3
"""Of all records (`lua/clock.lua` has the same number): raised whenever one of them changes."""

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode
_ID_CHARS = 36


def blob(data: bytes) -> msgspec.Raw:
    """Bytes inside a packed argument. The msgpack of Redis 6.2 knows only strings, which hold any bytes."""
    size = len(data)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + data)
    if size < 0x10000:
        return msgspec.Raw(b"\xda" + size.to_bytes(2, "big") + data)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4, "big") + data)


def pack_id(job: str) -> bytes:
    """An id as 16 bytes. What is no UUID was never accepted: it becomes bytes that no job has."""
    if len(job) == _ID_CHARS:
        try:
            raw = bytes.fromhex(job.replace("-", ""))
        except ValueError:
            raw = b""
        if len(raw) == 16:
            return raw
    return hashlib.blake2b(job.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def new_id(job: str) -> bytes:
    """The id of a job that is to be kept: it must come back as it was."""
    raw = pack_id(job)
    if unpack_id(raw) != job:
        raise ContractError(f"a job's id is a UUID in lower-case text, not {job!r}")
    return raw


def new_ids(jobs: Sequence[str]) -> bytes | None:
    """The ids of jobs that are to be kept, in one; None if they have to be looked at one by one."""
    if set(map(len, jobs)) - {_ID_CHARS} or len(set(jobs)) < len(jobs):
        return None
    text = "".join(jobs)
    dashes = "-" * len(jobs)
    if any(text[at::_ID_CHARS] != dashes for at in (8, 13, 18, 23)):
        return None
    digits = text.replace("-", "")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return None
    return raw if raw.hex() == digits else None


def unpack_id(raw: bytes) -> str:
    """An id as text."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def unpack_ids(raw: bytes) -> list[str]:
    """Ids as text, of many in one: a dash after every second byte, less those that no id has. It takes a
    quarter of what putting them together one by one does.
    """
    dashed = bytearray(raw.hex("-", 2), "ascii")
    del dashed[4::40]
    del dashed[28::39]
    del dashed[32::38]
    text = dashed.decode()
    return [text[at : at + _ID_CHARS] for at in range(0, len(text), _ID_CHARS + 1)]


class Rare(msgspec.Struct):
    """What few jobs have."""

    reason: str | None = None
    expires: int | None = None
    started: int = 0
    crashes: int = 0
    deadline: int | None = None
    finished: int | None = None
    cancel: int = 0
    hold_key: str | None = None
    hold_reason: str = ""
    hold_since: int = 0
    hold_times: int = 0
    waiting: int = 0
    replays: int = 0
    permille: int | None = None
    message: str = ""
    key: str | None = None
    flow: str = ""
    parent: str | None = None


class Cold(msgspec.Struct, array_like=True):
    """What no claim changes."""

    priority: int
    max_attempts: int
    band: int
    ends: int
    tags: str
    revision: int
    rare: Rare | bool


class Stamp(msgspec.Struct):
    """The end of a head: names and what no claim changes. Many jobs share one, so it is read once."""

    queue: str
    task: str
    lane: str
    cold: Cold
    rare: Rare
    tags: tuple[str, ...]
    is_plain: bool
    """A lease of it needs nothing else."""


class Head(msgspec.Struct):
    """The head of a job: small, and all that changes."""

    state: int
    attempt: int
    fence: int
    claimed: int
    session: str | None
    arrival: int
    due: int
    accepted: int
    finished: int | None
    stamp: Stamp


_FIRST = struct.Struct(">B4xIQ")
_LEASED = struct.Struct(">Q8xH")
_ENDED = struct.Struct(">Q8x")
_LAST = struct.Struct(">12xQQQ")
_RUNNING, _DONE, _ENDED_SHORT = 3, 4, 7
_cold = msgspec.msgpack.Decoder(Cold)
_tags = msgspec.json.Decoder(tuple[str, ...])
_NOTHING = Rare()
_MOST_KNOWN, _KEPT_BYTES = 2_000, 200
_known: dict[bytes, Stamp] = {}


def read_stamp(raw: bytes) -> Stamp:
    """The end of a head."""
    found = _known.get(raw)
    if found is None:
        size = 2 + int.from_bytes(raw[:2], "big")
        queue, task, lane = raw[2:size].decode().split("\0", 2)
        cold = _cold.decode(raw[size:])
        rare = cold.rare if isinstance(cold.rare, Rare) else _NOTHING
        plain = rare == Rare(flow=rare.flow, parent=rare.parent)
        found = Stamp(queue, task, lane, cold, rare, read_tags(cold.tags), plain)
        if plain and len(raw) <= _KEPT_BYTES:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[raw] = found
    return found


def read_head(raw: bytes) -> Head:
    """A head from its record (see `lua/jobs.lua`)."""
    state, attempt, fence = _FIRST.unpack_from(raw)
    at, claimed, session, finished = _FIRST.size, 0, None, None
    if state in (_RUNNING, _ENDED_SHORT):
        claimed, size = _LEASED.unpack_from(raw, at)
        at += _LEASED.size
        session = raw[at : at + size]
        at += size
        if state == _ENDED_SHORT:
            (finished,) = _ENDED.unpack_from(raw, at)
            at += _ENDED.size
            state, session = _DONE, None
    arrival, due, accepted = _LAST.unpack_from(raw, at)
    stamp = read_stamp(raw[at + _LAST.size : -8])
    holder = None if session is None or stamp.rare.deadline is not None else session.decode()
    if finished is None:
        finished = stamp.rare.finished
    return Head(state, attempt, fence, claimed, holder, arrival, due, accepted, finished, stamp)


_SAID = struct.Struct(">6xIQQ")
_DUE = struct.Struct(">17x20xQ8x")
read_due, CONSTANT = _DUE.unpack_from, _DUE.size
"""Reads when a ready job was due, from its head; and where its stamp begins."""


def read_lease(said: bytes) -> tuple[int, int, int]:
    """Attempt, fence and when it was claimed, of what a short claim says of jobs (see `lua/jobs.lua`)."""
    return _SAID.unpack_from(said)


def write_tags(tags: tuple[str, ...]) -> str:
    """Tags as text; scripts carry them and never read them."""
    return msgspec.json.encode(tags).decode() if tags else ""


def read_tags(text: str) -> tuple[str, ...]:
    """Tags from their text."""
    return _tags.decode(text) if text else ()


_HEADERS = msgspec.json.Decoder(dict[str, str])


_LONGEST_END = 255


@lru_cache(1_000)
def body_end(size: int) -> tuple[int, bytes]:
    """How long the end of a body is that has so many bytes besides, and what is between its two bytes.

    Lua hashes a string by every `step`th byte from the last backwards. Equal payloads would all have one
    hash, and be compared with each other at every call; so the last two bytes that it looks at are of the id.
    """
    step = (size >> 5) + 1
    while (size + step + 1 >> 5) + 1 > step:
        step += 1
    return (step + 1, bytes(step - 1)) if step < _LONGEST_END else (2, b"")


def write_body(headers: Any, payload: bytes, job: bytes) -> bytes:
    """A body: the length of its end (a byte) and of the headers (3), the headers, the payload, the end."""
    text = msgspec.json.encode(dict(headers)) if headers else b""
    end, between = body_end(4 + len(text) + len(payload))
    return (end << 24 | len(text)).to_bytes(4, "big") + text + payload + job[12:13] + between + job[13:14]


def read_body(raw: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and payload."""
    size = int.from_bytes(raw[1:4], "big")
    return (_HEADERS.decode(raw[4 : 4 + size]) if size else {}), raw[4 + size : -raw[0]]


def raw_text(raw: "msgspec.Raw") -> bytes:
    """The bytes of a msgpack string, which scripts write for any bytes, whether they are text or not."""
    data = bytes(raw)
    first = data[0]
    skip = 1 if first < 0xC0 else {0xD9: 2, 0xC4: 2, 0xDA: 3, 0xC5: 3, 0xDB: 5, 0xC6: 5}[first]
    return data[skip:]
