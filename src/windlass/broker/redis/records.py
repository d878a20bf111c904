"""Records as the scripts keep them: heads, tombstones, deliveries, policies; and ids as 16 bytes."""

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from windlass.errors import ContractError

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


def pack_ids(jobs: Sequence[str]) -> bytes:
    """Ids as 16 bytes each, in one. Many at once take a quarter of the time that one by one takes."""
    return _well_formed(jobs) or b"".join(map(pack_id, jobs))


def new_ids(jobs: Sequence[str]) -> bytes:
    """The ids of jobs that are to be kept, in one: they must come back as they were."""
    raw = _well_formed(jobs)
    if raw is None:
        raw = b"".join(map(pack_id, jobs))
        for at, job in enumerate(jobs):
            if unpack_id(raw[16 * at : 16 * at + 16]) != job:
                raise ContractError(f"a job's id is a UUID in lower-case text, not {job!r}")
    return raw


def _well_formed(jobs: Sequence[str]) -> bytes | None:
    """Ids in one; None if one of them is not a UUID in lower-case text."""
    text = "".join(jobs)
    count = len(jobs)
    if len(text) != _ID_CHARS * count or any(text[at::_ID_CHARS] != "-" * count for at in (8, 13, 18, 23)):
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
    crashes: int = 0
    deadline: int | None = None
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
    parent: str | None = None


class Cold(msgspec.Struct, array_like=True):
    """What no claim changes."""

    priority: int
    max_attempts: int
    band: int
    ends: int
    tags: str
    revision: int
    flow: str
    rare: Rare | bool


class Stamp(msgspec.Struct):
    """The end of a head: names and what no claim changes. Many jobs share one, so it is read once."""

    queue: str
    task: str
    lane: str
    cold: Cold
    rare: Rare
    tags: tuple[str, ...]


class Head(msgspec.Struct):
    """The head of a job: small, and all that changes."""

    state: int
    started: bool
    attempt: int
    fence: int
    claimed: int
    arrival: int
    due: int
    accepted: int
    finished: int
    runtime: int
    """0, or of a done job: 1, or 2 more than its last run took."""
    session: bytes
    stamp: Stamp


_HEAD = struct.Struct(">BxBxIQQ8x8x4xQQQQQH")
_cold = msgspec.msgpack.Decoder(Cold)
_tags = msgspec.json.Decoder(tuple[str, ...])
_NOTHING = Rare()
_MOST_KNOWN, _KEPT_BYTES = 2_000, 200
_known: dict[bytes, Stamp] = {}


def _read_stamp(raw: bytes) -> Stamp:
    found = _known.get(raw)
    if found is None:
        size = 2 + int.from_bytes(raw[:2], "big")
        queue, task, lane = raw[2:size].decode().split("\0", 2)
        cold = _cold.decode(raw[size:])
        rare = cold.rare if isinstance(cold.rare, Rare) else _NOTHING
        found = Stamp(queue, task, lane, cold, rare, read_tags(cold.tags))
        if rare is _NOTHING and len(raw) <= _KEPT_BYTES:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[raw] = found
    return found


def read_head(raw: bytes) -> Head:
    """A head from its record (see `lua/parts/jobs.lua`)."""
    (
        state,
        started,
        attempt,
        fence,
        claimed,
        arrival,
        due,
        accepted,
        finished,
        runtime,
        size,
    ) = _HEAD.unpack_from(raw)
    at = _HEAD.size + size
    return Head(
        state,
        started == 1,
        attempt,
        fence,
        claimed,
        arrival,
        due,
        accepted,
        finished,
        runtime,
        raw[_HEAD.size : at],
        _read_stamp(raw[at:-8]),
    )


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
