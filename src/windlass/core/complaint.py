"""What msgspec complains about, as a fault with an exact place.

msgspec names the place in an array and the field of a type, but says `[...]` for any entry of a dict.
"""

import re
from collections.abc import Callable
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from windlass.core.codec import brief, encode
from windlass.core.fault import Fault, Path, Unfit, described, fields_of, quoted
from windlass.core.models import MISSED, unread_alias

_Steps: TypeAlias = tuple[str | int | EllipsisType, ...]

_PLACE = re.compile(r" - at `(?P<key>key` in `)?\$(?P<path>.*)`\Z", re.DOTALL)
_STEP = re.compile(r"\[(?P<index>\d+)\]|(?P<some>\[\.\.\.\])|\.(?P<name>[^.\[]+)")
_GOT = re.compile(r"expected (?P<expected>.*), got \w+")
_IN_PYTHON = {"array": "list", "null": "None"}
_JSON_WORD = re.compile(r"\b(array|null)\b")


class _Complaint(NamedTuple):
    """An error of msgspec, taken apart. `...` is a key of a dict that it does not name."""

    reason: str
    steps: _Steps
    in_key: bool


def locate(decode: Callable[[bytes], object], document: bytes, error: Exception) -> Fault:
    """The place in a JSON document that `decode` refused with this error."""
    complaint = _read(error)
    try:
        path = _search(decode, document, complaint)
    except Exception:  # noqa: BLE001 - broken further on, or the same key twice: say what is known
        path = tuple("…" if step is ... else step for step in complaint.steps)
    if isinstance(inner := error.__cause__, Unfit):
        return Fault((*path, *inner.fault.path), inner.fault.reason)
    if complaint.in_key:
        return Fault(path[:-1], f"key {quoted(str(path[-1]))}: {complaint.reason}")
    return Fault(path, complaint.reason)


def in_words_of(given: object, fault: Fault) -> Fault:
    """The same fault, naming the Python type of what was given instead of the JSON type it was written as,
    or the alias for which a model does not read what it wrote.
    """
    try:
        for depth, step in enumerate(fault.path, 1):
            missed = depth == len(fault.path) and fault.reason.startswith(MISSED)
            if missed and (cause := unread_alias(given, str(step))):
                return Fault(fault.path, cause)
            given = (
                getattr(given, str(step))
                if fields_of(given)
                else cast("dict[str | int, object]", given)[step]
            )
    except (LookupError, TypeError, AttributeError):  # a path in JSON need not be one in the value
        return fault
    if (found := _GOT.fullmatch(fault.reason)) is None:
        return fault
    expected = _JSON_WORD.sub(lambda word: _IN_PYTHON[word[0]], found["expected"])
    return Fault(fault.path, f"expected {expected}, got {described(given)}")


def _read(error: Exception) -> _Complaint:
    text = str(error)
    place = _PLACE.search(text)
    reason = brief(ValueError(text[: place.start()] if place else text)).replace("`", "")
    reason = reason[:1].lower() + reason[1:]
    if place is None:
        return _Complaint(reason, (), in_key=False)
    steps: _Steps = tuple(
        int(step["index"]) if step["index"] else ... if step["some"] else step["name"]
        for step in _STEP.finditer(place["path"])
    )
    in_key = place["key"] is not None
    return _Complaint(reason, (*steps, ...) if in_key else steps, in_key)


def _search(decode: Callable[[bytes], object], document: bytes, complaint: _Complaint) -> Path:
    """Find the key that each `...` stands for: leave out halves of the dict until one key is left."""
    if ... not in complaint.steps:
        return cast("Path", complaint.steps)
    tree: Any = msgspec.json.decode(document)

    def still() -> bool:
        try:
            decode(encode(tree))
        except Exception as error:  # noqa: BLE001 - the decoder runs users' code, such as __post_init__
            return _read(error) == complaint
        return False

    node, path = tree, list[str | int]()
    for step in complaint.steps:
        path.append(_culprit(node, still) if step is ... else step)
        node = node[path[-1]]
    if not still():
        raise LookupError
    return tuple(path)


def _culprit(node: dict[str, object], still: Callable[[], bool]) -> str:
    items = list(node.items())
    while len(items) > 1:
        half = len(items) // 2
        node.clear()
        node.update(items[:half])
        items = items[:half] if still() else items[half:]
    node.clear()
    node.update(items)
    return items[0][0]
