"""Secrets in the arguments of a job: which they are, and how they are kept out of texts. Pure.

A value is secret when its parameter, field or key is called like one (`password`, `api_token`), or when it is
annotated: `Annotated[str, Secret]`. The payload is stored whole, since the task needs it; error texts, log
lines and everything that is shown have secret values taken out.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from windlass.core.fault import fields_of
from windlass.core.private import without_private

NAMES = frozenset(
    (
        *("password", "passwd", "passphrase", "pwd", "secret", "token", "jwt", "credential", "credentials"),
        *("api_key", "apikey", "private_key", "secret_key", "access_key", "authorization", "cookie"),
        *("card_number", "cvv", "cvc", "iban", "ssn", "pin"),
    )
)
"""What a secret is called; also as the last part of a longer name: `user_password`, `X-Api-Key`."""
MASK = "[secret]"
SHORTEST = 4
"""Characters of a value that is taken out of texts: a shorter one would be found everywhere."""
MOST = 1_000
"""Secrets of one job that are looked for in its texts; with more, the texts are not kept."""
WITHHELD = "[secret: not kept, since this job has too many secret values to take out]"
_DEEPEST = 64
_CUTS = ("…", "...")
"""What stands where a text was cut short."""
_USER = re.compile(r"""(?<=://)[^\s'"]*(?=@)""")
_SETTING = re.compile(rf"""(?i)\b((?:\w+_)?(?:{"|".join(sorted(NAMES))})=)[^\s'"&;]+""")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
"""Bytes that a URL does not escape."""


class Secret:
    """Marks an argument or a field as secret: `Annotated[str, Secret]`. Windlass never shows its value."""


def plain_name(name: str) -> str:
    """A name as names are compared: `X-Api-Key` and `x_api_key` are one."""
    return name.lower().replace("-", "_")


def is_secret_name(name: str, names: frozenset[str] = NAMES) -> bool:
    """Whether something of this name holds a secret."""
    plain = plain_name(name)
    return plain in names or any(plain.endswith(f"_{each}") for each in names)


def is_marked(annotation: Any) -> bool:
    """Whether an annotation says so: `Annotated[str, Secret]`, an instance of it, or `SecretStr`."""
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    if any(each is Secret or isinstance(each, Secret) for each in metadata) or _hides(annotation):
        return True
    # One that may also be None is marked inside of the union.
    inside = (each for each in get_args(annotation) if hasattr(each, "__metadata__") or _hides(each))
    return any(map(is_marked, inside))


def _hides(annotation: Any) -> bool:
    """Whether a type shows its value only when it is asked to, as Pydantic's `SecretStr` does."""
    return hasattr(get_origin(annotation) or annotation, "get_secret_value")


def secret_texts(value: object, *, secret: bool = False, names: frozenset[str] = NAMES) -> frozenset[str]:
    """The secret values inside of a value, as texts; of all of it, if it is secret itself."""
    return frozenset(
        text for text in _texts(value, secret=secret, names=names, depth=0) if len(text) >= SHORTEST
    )


def secrets_of_json(
    value: object, annotation: Any = Any, *, secret: bool = False, names: frozenset[str] = NAMES
) -> frozenset[str]:
    """The secret values inside of a JSON value of an annotated type, as texts. No code of the type runs, so
    it is also for a value that the type refuses.
    """
    found = _typed(value, (annotation,), secret=secret, names=names, depth=0)
    return frozenset(text for text in found if len(text) >= SHORTEST)


def holds_secret(value: object, annotation: Any = Any, *, names: frozenset[str] = NAMES) -> bool:
    """Whether there is a secret inside of a JSON value of an annotated type, however short."""
    return any(True for _ in _typed(value, (annotation,), secret=False, names=names, depth=0))


def without(text: str, secrets: Iterable[str]) -> str:
    """A text without these values, in whichever of the common ways they are written in it."""
    return Cleaner(secrets)(text)


class Cleaner:
    """Takes the same secrets out of any number of texts, and what looks private by some patterns."""

    __slots__ = ("_forms", "_patterns")

    def __init__(self, secrets: Iterable[str], patterns: Sequence[str] = ()) -> None:
        self._patterns = patterns
        found = frozenset(secrets)
        self._forms: list[str] | None = None
        if len(found) <= MOST:
            self._forms = sorted({form for secret in found for form in _forms(secret)}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them."""
        if self._forms is None:
            return WITHHELD if text else text
        for form in self._forms:
            text = text.replace(form, MASK)
        if any(cut in text for cut in _CUTS):
            for form in self._forms:
                text = _without_pieces(text, form)
        return without_private(text, self._patterns)


def _without_pieces(text: str, form: str) -> str:
    """Take out what is left of a secret in a text that somebody has cut short: its beginning before the cut,
    its end behind it.
    """
    for cut in _CUTS:
        start = text.find(form[:SHORTEST])
        while start >= 0:
            end = text.find(cut, start)
            if end >= start + SHORTEST and form.startswith(text[start:end]):
                text = text[:start] + MASK + text[end:]
            start = text.find(form[:SHORTEST], start + 1)
        end = text.rfind(form[-SHORTEST:])
        while end >= 0:
            start = text.rfind(cut, 0, end) + len(cut)
            stop = end + SHORTEST
            if len(cut) <= start <= end and form.endswith(text[start:stop]):
                text = text[:start] + MASK + text[stop:]
            end = text.rfind(form[-SHORTEST:], 0, end + SHORTEST - 1)
    return text


def without_credentials(text: str) -> str:
    """A text without the users and passwords of URLs in it, and without `password=...` of other addresses."""
    return _SETTING.sub(rf"\1{MASK}", _USER.sub(MASK, text))


def masked(value: Any, annotation: Any = Any, *, secret: bool = False, names: frozenset[str] = NAMES) -> Any:
    """A JSON-like value of an annotated type with its secrets replaced, for showing."""
    return _masked(value, (annotation,), secret=secret, names=names, depth=0)


def _masked(
    value: Any, annotations: tuple[Any, ...], *, secret: bool, names: frozenset[str], depth: int
) -> Any:
    if value is not None and (depth > _DEEPEST or secret or any(map(is_marked, annotations))):
        return MASK
    if not isinstance(value, Mapping | list | tuple):
        return value
    kinds = [kind for each in annotations for kind in _alternatives(each)]
    shown = [
        _masked(
            inner,
            parts,
            secret=any(is_secret_name(each, names) for each in found),
            names=names,
            depth=depth + 1,
        )
        for found, inner, parts in _parts(cast("object", value), kinds)
    ]
    if isinstance(value, Mapping):
        return dict(zip(cast("Mapping[Any, Any]", value), shown, strict=True))
    return shown


def _texts(value: object, *, secret: bool, names: frozenset[str], depth: int) -> Iterator[str]:
    if depth > _DEEPEST or value is None or isinstance(value, bool):
        return
    if _hides(type(value)):
        yield from _texts(cast("Any", value).get_secret_value(), secret=True, names=names, depth=depth + 1)
    elif isinstance(value, str | int | float):
        if secret:
            yield str(value)
    elif isinstance(value, bytes | bytearray):
        if secret:
            yield value.decode("utf-8", "replace")
    else:
        for name, inner, marked in _inside(value):
            told = secret or marked or (name is not None and is_secret_name(name, names))
            yield from _texts(inner, secret=told, names=names, depth=depth + 1)


def _inside(value: object) -> Iterator[tuple[str | None, object, bool]]:
    """What a value holds: by name where it has one, and whether its type marks it."""
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[object, object]", value).items():
            yield str(key), each, False
    elif (fields := fields_of(value)) is not None:
        marked = _marked_fields(type(value))
        for name in fields:
            yield name, getattr(value, name, None), name in marked
    elif isinstance(value, list | tuple | set | frozenset):
        for each in cast("Iterable[object]", value):
            yield None, each, False


@lru_cache(maxsize=1024)
def _marked_fields(kind: type) -> frozenset[str]:
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - a name that cannot be resolved here; names of fields still count
        return frozenset()
    return frozenset(name for name, hint in hints.items() if is_marked(hint))


# --- in JSON, by the types of its parts ---------------------------------------------------------------------


def _typed(
    value: object, annotations: tuple[Any, ...], *, secret: bool, names: frozenset[str], depth: int
) -> Iterator[str]:
    """By all types that a value may be of: which one it is does not matter here."""
    if depth > _DEEPEST or value is None or isinstance(value, bool):
        return
    secret = secret or any(is_marked(each) for each in annotations)
    kinds = [kind for each in annotations for kind in _alternatives(each)]
    if isinstance(value, str | int | float):
        if secret:
            yield str(value)
            yield from _as_decoded(value, kinds)
        return
    for name, inner, parts in _parts(value, kinds):
        told = secret or any(is_secret_name(each, names) for each in name)
        yield from _typed(inner, parts, secret=told, names=names, depth=depth + 1)


def _parts(value: object, kinds: list[Any]) -> Iterator[tuple[tuple[str, ...], object, tuple[Any, ...]]]:
    """What a JSON value holds: the names of each part, and the types it may be of."""
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[object, object]", value).items():
            fields = [found for kind in kinds if (found := _fields(kind).get(str(key))) is not None]
            values = [get_args(kind)[-1] for kind in kinds if len(get_args(kind)) == 2]
            hints = (*(field.hint for field in fields), *values)
            yield (str(key), *(field.name for field in fields)), each, hints
    elif isinstance(value, list | tuple):
        for at, each in enumerate(cast("list[object]", value)):
            hints = tuple(hint for kind in kinds for hint in get_args(kind) if hint is not ...)
            named = [field for kind in kinds for field in list(_fields(kind).values())[at : at + 1]]
            yield (
                tuple(field.name for field in named),
                each,
                (*hints, *(field.hint for field in named)),
            )


class _Field(NamedTuple):
    name: str
    hint: Any


@lru_cache(maxsize=1024)
def _fields(kind: Any) -> Mapping[str, _Field]:
    """The fields of a class, in their order, by the keys that JSON has for them."""
    kind = get_origin(kind) or kind
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - no class, or a name that cannot be resolved here
        return {}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        keys = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        return {key: _Field(name, hints.get(name, Any)) for name, key in keys}
    found = {name: _Field(name, hint) for name, hint in hints.items()}
    models: Mapping[str, Any] = getattr(cast("object", kind), "model_fields", {})
    for name, field in models.items():
        for attribute in ("alias", "serialization_alias", "validation_alias"):
            if isinstance(key := getattr(field, attribute, None), str):
                found[key] = _Field(name, hints.get(name, Any))
    return found


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The plain types behind an annotation."""
    for _ in range(_DEEPEST):
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif (named := getattr(annotation, "__supertype__", None)) is not None:  # a NewType
            annotation = named
        elif not isinstance(annotation, type) and (named := getattr(annotation, "__value__", None)):
            annotation = named  # type X = ...
        else:
            break
    if get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _alternatives(each)
    else:
        yield annotation


_TEXT_IN_JSON = (bytes, bytearray, datetime, date, time, timedelta, UUID)
"""Python writes them otherwise than JSON does."""


def _as_decoded(value: object, kinds: list[Any]) -> Iterator[str]:
    for kind in kinds:
        if kind in _TEXT_IN_JSON:
            try:
                found = msgspec.convert(value, kind, strict=False)
            except (msgspec.ValidationError, ValueError):
                continue
            if isinstance(found, bytes | bytearray):
                yield repr(bytes(found))[2:-1]
                yield found.decode("utf-8", "replace")
            else:
                yield str(found)
                yield repr(found)


# --- in texts -----------------------------------------------------------------------------------------------


def _forms(secret: str) -> Iterator[str]:
    """How a secret may be written: as it is, as Python or JSON quotes it, in a URL; a long one line by line,
    since tracebacks indent each line of what they quote.
    """
    for once in _quoted(secret):
        yield once
        yield from _quoted(once)
        yield once[:1].lower() + once[1:]  # a complaint that begins with it, in the middle of another one
    yield "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in secret.encode("utf-8", "replace")
    )
    lines = secret.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= SHORTEST)


def _quoted(text: str) -> Iterator[str]:
    yield text
    yield repr(text)[1:-1]
    yield repr(text + "'\"")[1:-4]  # as part of a text that has both quotes, so that one is escaped
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
