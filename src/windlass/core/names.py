"""Names that users give, each checked against a documented pattern: they end up in SQL, Lua, logs and URLs.

    task, queue, schedule,    a letter, a digit or "_", then letters, digits and any of _ . : / @ -
    flow, webhook, app        (ASCII; at most 100 characters)
    namespace                 a lower-case letter, then lower-case letters, digits and "_" (at most 48)
    lane                      text of at most 200 bytes in UTF-8; "" is no lane
    key (dedup)               text of 1 to 200 bytes
    tag                       text of 1 to 100 bytes; at most 16 on a job
    header                    a name like a task's, and text of at most 8,192 bytes; at most 32 on a job,
                              and 16 KiB together

Names that begin with "windlass." are those of Windlass's own tasks and queues: `refuse_reserved`.

Text has no control characters (C0, DEL, C1: they forge log lines and headers) and no lone surrogates. Names
are compared as they are: letter case counts, and Unicode is not normalised.
"""

import re
from collections.abc import Iterable, Mapping
from typing import cast

from windlass.core.option import shown
from windlass.errors import InvalidOption

LONGEST_NAME = 100
LONGEST_NAMESPACE = 48
LONGEST_LANE = 200
LONGEST_KEY = 200
LONGEST_TAG = 100
LONGEST_HEADER = 8_192
MAX_TAGS = 16
MAX_HEADERS = 32
MAX_HEADERS_BYTES = 16 * 1024

RESERVED = "windlass."
"""What the names of Windlass's own tasks and queues begin with."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]*")
NAMESPACE = re.compile(r"[a-z][a-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_reserved(name: str) -> bool:
    """Whether a task or a queue of this name is Windlass's own."""
    return name.startswith(RESERVED)


def refuse_reserved(name: str, what: str) -> str:
    """Return a name that may be given from outside, or refuse it: who could enqueue Windlass's own tasks
    could have any message signed.
    """
    if is_reserved(name):
        raise InvalidOption(
            f'{what} {shown(name)} cannot be used: names that begin with "{RESERVED}" are reserved for '
            "Windlass itself; choose another name"
        )
    return name


def check_task(name: object) -> str:
    """Return the name of a task, or refuse it."""
    return _name(name, "task name")


def check_queue(name: object) -> str:
    """Return the name of a queue, or refuse it."""
    return _name(name, "queue name")


def check_own_task(name: object) -> str:
    """Return the name of a task that a program registers, or refuse it."""
    return refuse_reserved(check_task(name), "task")


def check_own_queue(name: object) -> str:
    """Return the name of a queue that a program declares, or refuse it."""
    return refuse_reserved(check_queue(name), "queue")


def check_schedule(name: object) -> str:
    """Return the name of a schedule, or refuse it."""
    return _name(name, "schedule name")


def check_webhook(name: object) -> str:
    """Return the name of a webhook, or refuse it."""
    return _name(name, "webhook name")


def check_flow(name: object) -> str:
    """Return the name of a flow, or refuse it."""
    return _name(name, "flow name")


def check_app(name: object) -> str:
    """Return the name of an application, or refuse it."""
    return _name(name, "app name")


def check_namespace(name: object) -> str:
    """Return a namespace, or refuse it. It becomes a PostgreSQL schema and a prefix of Redis keys."""
    text = _matching(name, "namespace", NAMESPACE, LONGEST_NAMESPACE)
    if text.startswith("pg_") or text == "information_schema":
        raise InvalidOption(f'namespace "{text}" is reserved by PostgreSQL; choose another name')
    return text


def check_lane(lane: object) -> str:
    """Return a lane, or refuse it; "" is no lane."""
    return _text(lane, "lane", 0, LONGEST_LANE)


def check_key(key: object) -> str:
    """Return a dedup key, or refuse it."""
    return _text(key, "key", 1, LONGEST_KEY)


def check_tag(tag: object) -> str:
    """Return a tag, or refuse it."""
    return _text(tag, "tag", 1, LONGEST_TAG)


def check_tags(tags: object) -> tuple[str, ...]:
    """Return the tags of a job, each once and in order, or refuse them."""
    if isinstance(tags, (str, bytes, Mapping)) or not isinstance(tags, Iterable):
        what = shown(cast("object", tags))
        raise InvalidOption(f'tags must be a sequence of strings, such as ("invoice", "eu"), not {what}')
    checked = tuple(dict.fromkeys(check_tag(tag) for tag in cast("Iterable[object]", tags)))
    if len(checked) > MAX_TAGS:
        raise InvalidOption(f"a job can have at most {MAX_TAGS} tags, got {len(checked):,}")
    return checked


def check_headers(headers: object) -> dict[str, str]:
    """Return a copy of the headers of a job, or refuse them."""
    if not isinstance(headers, Mapping):
        raise InvalidOption(f"headers must be a mapping from names to strings, not {shown(headers)}")
    given = cast("Mapping[object, object]", headers)
    if len(given) > MAX_HEADERS:
        raise InvalidOption(f"a job can have at most {MAX_HEADERS} headers, got {len(given):,}")
    checked: dict[str, str] = {}
    for name, value in given.items():
        text = _name(name, "header name")
        checked[text] = _text(value, f'header "{text}"', 0, LONGEST_HEADER)
    size = sum(len(name) + len(value.encode()) for name, value in checked.items())
    if size > MAX_HEADERS_BYTES:
        raise InvalidOption(f"headers have {size:,} bytes together, the limit is {MAX_HEADERS_BYTES:,}")
    return checked


def _name(value: object, what: str) -> str:
    return _matching(value, what, NAME, LONGEST_NAME)


def _matching(value: object, what: str, pattern: re.Pattern[str], longest: int) -> str:
    text = _exact(value, what)
    if len(text) > longest:
        raise InvalidOption(f"{what} {shown(text)} has {len(text):,} characters, the limit is {longest}")
    if not pattern.fullmatch(text):  # not match with $, which lets a final newline pass
        raise InvalidOption(f"{what} {shown(text)} does not match {pattern.pattern}")
    return text


def _text(value: object, what: str, least: int, most: int) -> str:
    text = _exact(value, what)
    if least <= len(text) <= most and text.isascii() and text.isprintable():
        return text
    if len(text) < least:
        raise InvalidOption(f"{what} must not be empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidOption(
            f"{what} {shown(text)} has a lone surrogate at position {error.start:,}, which is not text"
        ) from None
    if size > most:
        raise InvalidOption(f"{what} {shown(text)} has {size:,} bytes in UTF-8, the limit is {most:,}")
    if control := _CONTROL.search(text):
        raise InvalidOption(
            f"{what} {shown(text)} has a control character (U+{ord(control[0]):04X}) at position "
            f"{control.start():,}; remove it"
        )
    return text


def _exact(value: object, what: str) -> str:
    """A plain str: a subclass (a StrEnum, say) could answer len() or == in its own way later on."""
    if not isinstance(value, str):
        raise InvalidOption(f"{what} must be a string, not {shown(value)}")
    return str.__str__(value)
