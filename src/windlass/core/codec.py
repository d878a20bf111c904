"""Payloads and results on the wire: JSON through msgspec, opaque bytes in every store.

    payload   {"v":1,"a":[1,2],"k":{"to":"x"}}   the call f(1, 2, to="x"); an absent "a" or "k" is empty
    result    {"v":1,"r":42}
    either    {"v":2,"size":70000,"sha256":"…"}  it is in object storage; see `windlass.values`

"v" is the version of this format; bytes of another version are recognised and left alone. Any language can
write it: over HTTP the payload object is "k". Never stored, since some store or reader would change it:

    NaN and infinity                  JSON has neither, msgspec would write null (a Decimal is text: it may)
    NUL characters, lone surrogates   PostgreSQL's text cannot hold the one, UTF-8 not the other
    integers beyond signed 64 bits    (readers in JavaScript are exact to 2^53: give them larger ones as text)
    more than 64 levels of nesting    in one argument or result

When a JSON object names a key twice, the last one counts. This module looks at bytes alone; `fault` says
where in a value the trouble is, and `signature` holds values against the types of a function.
"""

import hashlib
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from windlass.errors import UnreadablePayload

VERSION: Final = 1
REFERENCE: Final = 2
"""The version of references: code that knows none leaves them alone, as it does with what is newer."""
MAX_PAYLOAD = 1024 * 1024
"""The default limit, in bytes, of a payload and of a result."""
MAX_DEPTH = 64
LEAST_INTEGER, MOST_INTEGER = -(2**63), 2**63 - 1


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A payload as it is written."""

    v: Literal[1]
    a: tuple[object, ...] = ()
    k: Mapping[str, object] = {}


class Return(msgspec.Struct, frozen=True):
    """A result as it is written."""

    v: Literal[1]
    r: object


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A payload as it is opened: each argument still in JSON, for the decoder of its type."""

    v: Literal[1]
    a: tuple[Raw, ...] = ()
    k: dict[str, Raw] = {}


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A result as it is opened."""

    v: Literal[1]
    r: Raw


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands for a payload or a result that is in object storage. It does not say where: that follows
    from the job that it is read of.
    """

    v: Literal[2]
    size: int
    sha256: str


class _Version(msgspec.Struct, frozen=True):
    v: int


def as_plain(value: object) -> object:
    """Write subclasses of str, int and float (Django's SafeString, numpy's float64) as what they are."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):  # a bool comes here as the key of a dict
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise NotImplementedError(f"a value of type {type(value).__name__} has no JSON form")


encode = msgspec.json.Encoder(enc_hook=as_plain).encode
"""Any value as JSON; exceptions of several kinds if it cannot be."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it cannot decode (before 0.21 its own errors were no ValueErrors)."""

_LONGEST_REASON = 200
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F]"
_LONE_SURROGATE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_decode_payload = msgspec.json.Decoder(Payload).decode
_decode_result = msgspec.json.Decoder(Result).decode
_decode_version = msgspec.json.Decoder(_Version).decode
_decode_reference = msgspec.json.Decoder(Reference).decode
_REFERENCE = b'{"v":2,"size":'


def brief(error: Exception) -> str:
    """What an error of msgspec says, cut short: it may repeat a name or a value from the document."""
    text = str(error)
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"


_PLAINER = {
    "Input data was truncated": "it ends too early: a brace, a bracket or a quote is missing",
    "JSON is malformed: object keys must be strings": "names in it must be in double quotes",
}


def why_unreadable(document: bytes, error: Exception) -> str:
    """Why msgspec could not read a document. Of a lone surrogate it may say that the input ends too early."""
    malformed = not isinstance(error, msgspec.ValidationError)
    if malformed and _LONE_SURROGATE.search(document.replace(b"\\\\", b"")):
        return "it has an escape for a lone surrogate, which is not text"
    if not document.strip():
        return "it is empty"
    said = brief(error)
    return _PLAINER.get(said.partition(" (byte")[0], said)


def open_payload(document: bytes) -> Payload:
    """Take the envelope off a payload, or say why it is `UnreadablePayload`."""
    try:
        return _decode_payload(document)
    except UNREADABLE as error:
        raise _unreadable("payload", document, error) from None


def plain_arguments(payload: bytes) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a payload as plain JSON: those by place, and those by name. `UNREADABLE` and
    `UnreadablePayload` if it cannot be read.
    """
    call = open_payload(payload)
    args = [msgspec.json.decode(value) for value in call.a]
    return args, {name: msgspec.json.decode(value) for name, value in call.k.items()}


def open_result(document: bytes) -> Result:
    """Take the envelope off a result, or say why it is `UnreadablePayload`."""
    try:
        return _decode_result(document)
    except UNREADABLE as error:
        raise _unreadable("result", document, error) from None


def reference_to(document: bytes) -> bytes:
    """What stands in the store for a payload or a result that is put elsewhere."""
    return encode(Reference(REFERENCE, len(document), hashlib.sha256(document).hexdigest()))


def is_reference(document: bytes) -> bool:
    """Whether a payload or a result is a reference. What users give is always inside of an envelope of
    version 1, so none of it can look like one.
    """
    return document.startswith(_REFERENCE)


def read_reference(document: bytes) -> Reference:
    """Read a reference, or say why it is `UnreadablePayload`."""
    try:
        return _decode_reference(document)
    except UNREADABLE as error:
        raise _unreadable("reference", document, error) from None


def size_of(document: bytes) -> int:
    """The bytes of a payload or a result, wherever they are."""
    if is_reference(document):
        try:
            return _decode_reference(document).size
        except UNREADABLE:
            pass
    return len(document)


def check_referred(reference: Reference, document: bytes) -> bytes:
    """Return what was read for a reference, or refuse it if it is not what was put."""
    if len(document) != reference.size or hashlib.sha256(document).hexdigest() != reference.sha256:
        raise UnreadablePayload(
            f"what object storage has, {len(document):,} bytes, is not what was put there "
            f"({reference.size:,} bytes): somebody has replaced it"
        )
    return document


def _unreadable(what: str, document: bytes, error: Exception) -> UnreadablePayload:
    try:
        version = _decode_version(document).v
    except UNREADABLE:
        version = VERSION
    if version == REFERENCE and is_reference(document):
        reason = (
            f"of {size_of(document):,} bytes is in object storage, and this process has none: give its app "
            "the same values= (WINDLASS_VALUES) as the process that put it there"
        )
    elif version != VERSION:
        reason = f"has format version {version}, this code reads version {VERSION}; upgrade this process"
    elif isinstance(error, RecursionError):
        reason = f"is nested deeper than {MAX_DEPTH} levels"
    else:
        reason = f"of {len(document):,} bytes is not readable: {why_unreadable(document, error)}"
    return UnreadablePayload(f"{what} {reason}")


# --- what the bytes alone can tell --------------------------------------------------------------------------
# Measured: each look takes 0.3 µs for a small payload and 1 to 2 ms for 1 MiB of text; a walk through the
# values in Python takes 0.45 µs for every key and value. So only what looks suspicious here is walked.

_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_WIDE = b"0" * len(str(MOST_INTEGER))
_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_AS_STEPS = bytes.maketrans(b"[]", b"\x01\xff")
_SHALLOW = 4
_QUOTED = re.compile(rb'"[^"]*"')


def has_nul(document: bytes) -> bool:
    """Whether a string in a JSON document contains NUL (a bare NUL byte is not JSON at all)."""
    return b"\\u0000" in document.replace(b"\\\\", b"")


def may_have_wide_integer(document: bytes) -> bool:
    """Whether an integer beyond 64 bits is possible: 19 digits in a row, be they of a number or in a text."""
    return _WIDE in document.translate(_DIGITS)


def nests_deeper(document: bytes, levels: int) -> bool:
    """Whether a JSON document nests deeper than so many levels; no input can exhaust a stack here."""
    if document.count(b"[") + document.count(b"{") <= levels:
        return False
    unescaped = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side can go: what is inside a string stays so. Few are left for the slower pattern.
    marks = unescaped.translate(_AS_SQUARE, _NOT_STRUCTURE).replace(b'""', b"")
    brackets = _QUOTED.sub(b"", marks)
    # Most documents vanish when the innermost brackets are taken away a few times, which is quick; the others
    # are counted, which takes 50 ms for a MiB of brackets.
    for _ in range(_SHALLOW):
        brackets = brackets.replace(b"[]", b"")
    steps = memoryview(brackets.translate(_AS_STEPS)).cast("b")
    return max(accumulate(steps), default=0) + _SHALLOW > levels
