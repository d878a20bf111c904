"""Secrets in the arguments of a job: which they are, and how they are kept out of texts. Pure.

A value is secret when its parameter, field or key is called like one (`password`, `api_token`), or when it is
annotated: `Annotated[str, Secret]`. The payload is stored whole, since the task needs it; error texts, log
lines and everything that is shown have secret values taken out.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast, get_args, get_type_hints

import msgspec

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
_DEEPEST = 64
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
"""Bytes that a URL does not escape."""


class Secret:
    """Marks an argument or a field whose value must be shown nowhere: `Annotated[str, Secret]`."""


def is_secret_name(name: str, names: frozenset[str] = NAMES) -> bool:
    """Whether something of this name holds a secret."""
    plain = name.lower().replace("-", "_")
    return plain in names or any(plain.endswith(f"_{each}") for each in names)


def is_marked(annotation: Any) -> bool:
    """Whether an annotation says so: `Annotated[str, Secret]`, or an instance of it."""
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    if any(each is Secret or isinstance(each, Secret) for each in metadata):
        return True
    # One that may also be None is marked inside of the union.
    return any(is_marked(each) for each in get_args(annotation) if hasattr(each, "__metadata__"))


def secret_texts(value: object, *, secret: bool = False, names: frozenset[str] = NAMES) -> frozenset[str]:
    """The secret values inside of a value, as texts; of all of it, if it is secret itself."""
    return frozenset(
        text for text in _texts(value, secret=secret, names=names, depth=0) if len(text) >= SHORTEST
    )


def without(text: str, secrets: Iterable[str]) -> str:
    """A text without these values, in whichever of the common ways they are written in it."""
    written = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(written, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def masked(value: Any, *, secret: bool = False, names: frozenset[str] = NAMES) -> Any:
    """A JSON-like value with its secrets replaced, for showing."""
    if secret:
        return None if value is None else MASK
    if isinstance(value, Mapping):
        found = cast("Mapping[Any, Any]", value)
        return {
            key: masked(each, secret=is_secret_name(str(key), names), names=names)
            for key, each in found.items()
        }
    if isinstance(value, list | tuple):
        return [masked(each, names=names) for each in cast("list[Any]", value)]
    return value


def _texts(value: object, *, secret: bool, names: frozenset[str], depth: int) -> Iterator[str]:
    if depth > _DEEPEST or value is None or isinstance(value, bool):
        return
    if isinstance(value, str | int | float):
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
    elif isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        marked = _marked_fields(type(value))
        for name in _field_names(value):
            yield name, getattr(value, name, None), name in marked
    elif isinstance(value, list | tuple | set | frozenset):
        for each in cast("Iterable[object]", value):
            yield None, each, False


def _field_names(value: Any) -> Iterable[str]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return [field.name for field in dataclasses.fields(value)]


@lru_cache(maxsize=1024)
def _marked_fields(kind: type) -> frozenset[str]:
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - a name that cannot be resolved here; names of fields still count
        return frozenset()
    return frozenset(name for name, hint in hints.items() if is_marked(hint))


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in secret.encode("utf-8", "replace")
    )
