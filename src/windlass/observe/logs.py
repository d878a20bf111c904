"""Structured logs: one JSON object per line, with the job that was running where it was logged.

    {"time": "2026-07-01T12:00:00.123Z", "level": "info", "logger": "shop.mail", "message": "sent",
     "pid": 4711, "job": "0197…", "task": "send", "queue": "mail", "lane": "acme", "attempt": 1,
     "fence": 1751…}

`windlass worker --log-format json` writes them; in a program of your own it is `JsonFormatter()` on a
handler. What a job was called with is not among the fields, and secrets that it was called with are taken out
of what its code logs.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from windlass.errors import InvalidOption
from windlass.observe.traces import current_ids

FORMAT_VARIABLE = "WINDLASS_LOG_FORMAT"
LEVEL_VARIABLE = "WINDLASS_LOG_LEVEL"
PLAIN = "%(asctime)s %(levelname)s %(process)d %(message)s"
"""Of every process of a worker: the number is its pid."""

_encode = msgspec.json.Encoder().encode
_OWN = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
"""What every record has; all else was given as `extra`."""
_TAKEN = frozenset(
    ("time", "level", "logger", "message", "pid", "job", "task", "queue", "lane", "attempt", "fence", "error")
)


class Telling(Protocol):
    """A run, as far as logs tell of it."""

    @property
    def fields(self) -> Mapping[str, object]:
        """job, task, queue, lane, attempt, fence."""
        ...

    def clean(self, text: str) -> str:
        """A text without the secrets that the job was called with."""
        ...


_runs: list[Callable[[], Telling | None]] = []


def runs_are_told_by(look: Callable[[], Telling | None]) -> None:
    """Said by the worker's room when it is imported: how to find the run that the calling code is part of."""
    _runs.append(look)


class JsonFormatter(logging.Formatter):
    """A line of JSON for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        run = next((found for look in _runs if (found := look()) is not None), None)
        clean = _as_it_is if run is None else run.clean
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(_message(record)),
            "pid": record.process,
        }
        if run is not None:
            line.update(run.fields)
        line.update(current_ids())
        for name, value in vars(record).items():
            if name not in _OWN and name not in _TAKEN and isinstance(value, str | int | float | bool):
                line[name] = clean(value) if isinstance(value, str) else value
        line.update(self._error(record, clean))
        return _encode(line).decode()

    def _error(self, record: logging.LogRecord, clean: Callable[[str], str]) -> Mapping[str, object]:
        if not record.exc_info or record.exc_info[0] is None:
            return {}
        kind = record.exc_info[0]
        return {
            "error": f"{kind.__module__}.{kind.__qualname__}",
            "traceback": clean(self.formatException(record.exc_info)),
        }


def begin_logging() -> None:
    """Set up the logs of a worker's process, as its environment says: other processes are started, not
    forked. `InvalidOption` names what has no meaning.
    """
    level = os.environ.get(LEVEL_VARIABLE, "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        raise InvalidOption(f'{LEVEL_VARIABLE} must be debug, info, warning or error, not "{level}"')
    wanted = os.environ.get(FORMAT_VARIABLE, "text")
    if wanted not in ("text", "json"):
        raise InvalidOption(f'{FORMAT_VARIABLE} must be text or json, not "{wanted}"')
    logging.basicConfig(level=level, format=PLAIN)
    if wanted == "json":
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and _is_standard(handler):
                handler.setFormatter(JsonFormatter())


def _is_standard(handler: Any) -> bool:
    """Not one that the app has opened for itself, such as a file."""
    return handler.stream in (sys.stderr, sys.stdout)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever an argument's text does, the line is not lost
        return f"{record.msg} (its arguments cannot be shown: {type(error).__name__})"


def _as_it_is(text: str) -> str:
    return text
