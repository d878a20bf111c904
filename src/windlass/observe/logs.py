"""Logs: what a worker's process writes, as text or as a JSON object per line, with the job that was running.

    2026-07-01T14:00:00.123+02:00 INFO 4711 sent

    {"time": "2026-07-01T12:00:00.123Z", "level": "info", "logger": "shop.mail", "message": "sent",
     "pid": 4711, "job": "0197…", "task": "send", "queue": "mail", "lane": "acme", "attempt": 1,
     "fence": 1751…}

`windlass worker --log-format json` writes JSON; in a program of your own it is `JsonFormatter()` on a
handler. What a job was called with is not among the fields, and secrets that it was called with are taken out
of what its code logs. What is logged when: docs/logging-and-sentry.md.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from windlass.core.outcome import type_name
from windlass.errors import InvalidOption
from windlass.observe.runs import LOGGER, RUN
from windlass.observe.traces import current_ids

FORMAT_VARIABLE = "WINDLASS_LOG_FORMAT"
LEVEL_VARIABLE = "WINDLASS_LOG_LEVEL"
PLAIN = "%(asctime)s %(levelname)s %(process)d %(message)s"
"""Of every process of a worker: the number is its pid."""
LEVELS = {
    "debug": logging.DEBUG,
    "run": RUN,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

_encode = msgspec.json.Encoder().encode
_OWN = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
"""What every record has; all else was given as `extra`."""
_TAKEN = frozenset(
    (
        *("time", "level", "logger", "message", "pid", "error"),
        *("job", "task", "queue", "lane", "attempt", "max_attempts", "fence"),
    )
)


class RunningJob(Protocol):
    """A run, as far as logs need to know it."""

    @property
    def fields(self) -> Mapping[str, object]:
        """Such as job, task and queue."""
        ...

    def clean(self, text: str) -> str:
        """A text without the secrets that the job was called with."""
        ...


_finders: list[Callable[[], RunningJob | None]] = []


def find_runs_with(finder: Callable[[], RunningJob | None]) -> None:
    """Say how to find the run that the calling code is part of; the worker does so when it is imported."""
    _finders.append(finder)


def _running() -> RunningJob | None:
    return next((found for finder in _finders if (found := finder()) is not None), None)


class TextFormatter(logging.Formatter):
    """A line for each record, and a traceback below it. The time has its UTC offset, even if the program
    changes its time zone.
    """

    def __init__(self) -> None:
        super().__init__(PLAIN)

    def format(self, record: logging.LogRecord) -> str:
        """The text, without the secrets of the job that was running."""
        run = _running()
        text = super().format(record)
        return text if run is None else run.clean(text)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        """ISO 8601 with milliseconds and offset."""
        return datetime.fromtimestamp(record.created, UTC).astimezone().isoformat(timespec="milliseconds")


class JsonFormatter(logging.Formatter):
    """A line of JSON for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        run = _running()
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
        taken = frozenset[str]() if record.name == LOGGER else _TAKEN
        for name, value in vars(record).items():
            if name not in _OWN and name not in taken and isinstance(value, str | int | float | bool):
                line[name] = clean(value) if isinstance(value, str) else value
        line.update(self._error(record, clean))
        try:
            return _encode(line).decode()
        except UnicodeEncodeError:  # a text with half of a character (a lone surrogate)
            return _encode({name: _whole(value) for name, value in line.items()}).decode()

    def _error(self, record: logging.LogRecord, clean: Callable[[str], str]) -> Mapping[str, object]:
        raised = record.exc_info[1] if record.exc_info else None
        if record.exc_info is None or raised is None:
            return {"traceback": clean(record.exc_text)} if record.exc_text else {}
        return {"error": type_name(raised), "traceback": clean(self.formatException(record.exc_info))}


def check_logging() -> tuple[int, str]:
    """The level and the format that the environment asks for. `InvalidOption` names what has no meaning."""
    level = os.environ.get(LEVEL_VARIABLE) or "info"
    if level.lower() not in LEVELS:
        raise InvalidOption(f'{LEVEL_VARIABLE} must be debug, run, info, warning or error, not "{level}"')
    wanted = os.environ.get(FORMAT_VARIABLE) or "text"
    if wanted not in ("text", "json"):
        raise InvalidOption(f'{FORMAT_VARIABLE} must be text or json, not "{wanted}"')
    return LEVELS[level.lower()], wanted


def begin_logging() -> None:
    """Set up the logs of a process of Windlass as its environment says: other processes are started, not
    forked. Called after the app was imported: handlers that it has set up stay, and get our records.
    """
    level, wanted = check_logging()
    _enable()
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(TextFormatter())
        if wanted == "text":
            handler.addFilter(_is_new)
        root.addHandler(handler)
        root.setLevel(level)
    if os.environ.get(LEVEL_VARIABLE):  # it was asked for, also where the app has a level of its own
        logging.getLogger("windlass").setLevel(level)
    if wanted == "json":
        for handler in root.handlers:
            if isinstance(handler, logging.StreamHandler) and _is_standard(handler):
                handler.setFormatter(JsonFormatter())


def _enable() -> None:
    """`dictConfig` disables all loggers that exist unless told otherwise: hardly anybody wants to work
    without knowing what fails. Who does gives `windlass` a level.
    """
    for name, found in list(logging.root.manager.loggerDict.items()):
        if name.split(".", 1)[0] == "windlass" and isinstance(found, logging.Logger):
            found.disabled = False


def _is_new(record: logging.LogRecord) -> bool:
    """Whether no handler of a logger of the app's has written the record to the same place: Django has such
    a handler while `DEBUG` is on.
    """
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger is not logging.root:
        if any(_writes(handler, record) for handler in logger.handlers):
            return False
        logger = logger.parent
    return True


def _writes(handler: logging.Handler, record: logging.LogRecord) -> bool:
    return (
        isinstance(handler, logging.StreamHandler)
        and _is_standard(handler)
        and record.levelno >= handler.level
        and bool(handler.filter(record))
    )


def _is_standard(handler: Any) -> bool:
    """Not one that the app has opened for itself, such as a file."""
    return handler.stream in (sys.stderr, sys.stdout)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever an argument's text does, the line is not lost
        return f"{record.msg} (its arguments cannot be shown: {type(error).__name__})"


def _whole(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _as_it_is(text: str) -> str:
    return text
