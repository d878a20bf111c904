"""Records as the scripts keep them: heads, tombstones, deliveries, policies; and ids as 16 bytes."""

import hashlib
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


def unpack_id(raw: bytes) -> str:
    """An id as text."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


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


class Head(msgspec.Struct, array_like=True):
    """The head of a job: small, and all that changes."""

    state: int
    queue: str
    task: str
    lane: str
    priority: int
    max_attempts: int
    attempt: int
    fence: int
    due: int
    band: int
    sequence: int
    arrival: int
    accepted: int
    size: int
    ends: int
    tags: str
    revision: int
    place: int
    session: str | bool
    ask: int
    position: int
    claimed: int
    rare: Rare | bool


_head = msgspec.msgpack.Decoder(Head)
_tags = msgspec.json.Decoder(tuple[str, ...])
_PLAIN = Rare()


def read_head(raw: bytes) -> Head:
    """A head from its record."""
    return _head.decode(raw)


def rare(head: Head) -> Rare:
    """What few jobs have, of this one."""
    return head.rare if isinstance(head.rare, Rare) else _PLAIN


def write_tags(tags: tuple[str, ...]) -> str:
    """Tags as text; scripts carry them and never read them."""
    return msgspec.json.encode(tags).decode() if tags else ""


def read_tags(text: str) -> tuple[str, ...]:
    """Tags from their text."""
    return _tags.decode(text) if text else ()


_HEADERS = msgspec.json.Decoder(dict[str, str])


def write_body(headers: Any, payload: bytes) -> bytes:
    """A body: the length of the headers, the headers, the payload."""
    if not headers:
        return b"\0\0\0\0" + payload
    text = msgspec.json.encode(dict(headers))
    return len(text).to_bytes(4, "big") + text + payload


def read_body(raw: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and payload."""
    size = int.from_bytes(raw[:4], "big")
    return (_HEADERS.decode(raw[4 : 4 + size]) if size else {}), raw[4 + size :]


def raw_text(raw: "msgspec.Raw") -> bytes:
    """The bytes of a msgpack string, which scripts write for any bytes, whether they are text or not."""
    data = bytes(raw)
    first = data[0]
    skip = 1 if first < 0xC0 else {0xD9: 2, 0xC4: 2, 0xDA: 3, 0xC5: 3, 0xDB: 5, 0xC6: 5}[first]
    return data[skip:]
