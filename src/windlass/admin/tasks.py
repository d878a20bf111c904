"""Tasks: what each takes, as JSON Schema, and how its jobs are doing."""

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import msgspec

from windlass.admin.reading import documents
from windlass.admin.strikes import Strikes, StrikeShown
from windlass.admin.views import seconds
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.names import is_reserved
from windlass.core.secret import is_secret_name
from windlass.core.settings import Document, Kind
from windlass.core.signature import Signature
from windlass.core.state import State
from windlass.worker.registration import TaskDocument

_REVEALING = ("default", "examples", "const", "enum")
"""Keywords of a schema that may hold a value."""


class TaskEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A task, of this app or of another that shares the namespace."""

    name: str
    queue: str
    app: str
    """Who declared it; of an external task the app that serves this."""
    revision: int
    external: bool
    """It lives elsewhere: its arguments are not known here."""
    doc: str
    run: str | None
    timeout: float | None
    max_attempts: int
    jobs: Mapping[str, int]
    """By state."""
    paused: bool
    strikes: int
    arguments: dict[str, Any]
    """JSON Schema of its arguments by name. What is secret is marked `writeOnly` and shows no values."""


class Tasks:
    """All tasks that a namespace knows."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    async def all(self, counted: Callable[[str], bool] = lambda _: True) -> list[TaskEntry]:
        """Every task that can be enqueued, by name: those of the app, and those that workers have declared.
        Their jobs are counted in those queues that are `counted`.
        """
        counts: dict[str, Counter[State]] = {}
        for row in (await self._broker.counts()).rows:
            if counted(row.queue):
                counts.setdefault(row.task, Counter())[row.state] += row.count
        strikes = [strike async for strike in Strikes(self._app, self._broker).all()]
        told = {document.name: (app, document) async for app, document in self._documents()}
        names = sorted(name for name in {*told, *self._app.tasks} if not is_reserved(name))
        return [self._entry(name, told.get(name), counts.get(name, Counter()), strikes) for name in names]

    async def _documents(self) -> AsyncIterator[tuple[str, TaskDocument]]:
        async for document in documents(self._broker, Kind.TASK):
            told = _decoded(document)
            if told is not None:
                yield document.app, told

    def _entry(
        self,
        name: str,
        told: tuple[str, TaskDocument] | None,
        counts: Counter[State],
        strikes: list[StrikeShown],
    ) -> TaskEntry:
        common: dict[str, Any] = {
            "name": name,
            "jobs": {state.value: counts[state] for state in State},
            "paused": any(strike.task == name and not strike.where for strike in strikes),
            "strikes": sum(strike.task == name and bool(strike.where) for strike in strikes),
        }
        own = self._app.tasks.get(name)
        if own is not None and (told is None or not own.options.external):
            options = own.options
            external = options.external
            schema = {"type": "object"} if external else own.signature.schema()
            return TaskEntry(
                **common,
                queue=options.queue,
                app=self._app.name if told is None else told[0],
                revision=options.revision,
                external=external,
                doc=inspect.cleandoc(getattr(own, "__doc__", None) or "") if not external else "",
                run=options.run,
                timeout=None if options.timeout is None else seconds(options.timeout),
                max_attempts=options.retry.max_attempts,
                arguments=discreet(schema, None if external else own.signature),
            )
        app, document = cast("tuple[str, TaskDocument]", told)
        return TaskEntry(
            **common,
            queue=document.queue,
            app=app,
            revision=document.revision,
            external=own is not None,
            doc=document.doc,
            run=document.run,
            timeout=None if document.timeout is None else seconds(document.timeout),
            max_attempts=document.max_attempts,
            arguments=discreet(document.schema, None),
        )


def discreet(schema: dict[str, Any], signature: Signature | None) -> dict[str, Any]:
    """A schema without values of what is secret, by name anywhere, or by the annotation of an argument."""
    names: Mapping[str, Any] = schema.get("properties", {})
    marked: frozenset[str] = frozenset()
    if signature is not None:
        _, shown = signature.masked([], dict.fromkeys(names, 0))
        marked = frozenset(name for name, value in shown.items() if value != 0)
    found = cast("dict[str, Any]", _discreet(schema))
    for name in marked:
        found["properties"][name] = _veiled(found["properties"][name])
    return found


def _discreet(value: Any) -> Any:
    if isinstance(value, list):
        return [_discreet(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found = {name: _discreet(each) for name, each in cast("dict[str, Any]", value).items()}
    properties = found.get("properties")
    if isinstance(properties, dict):
        for name, each in cast("dict[str, Any]", properties).items():
            if is_secret_name(name) and isinstance(each, dict):
                properties[name] = _veiled(cast("dict[str, Any]", each))
    return found


def _veiled(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if name not in _REVEALING}
    return {**kept, "writeOnly": True}


def _decoded(document: Document) -> TaskDocument | None:
    try:
        body = document.declared
        return msgspec.json.decode(body, type=TaskDocument) if isinstance(body, bytes) else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # a newer version's
