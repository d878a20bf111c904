"""Tasks for operators: seen, paused and resumed; strikes on some of their jobs, made and lifted."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from windlass.admin.audit import Audit, operator_name
from windlass.admin.enqueueing import task_named
from windlass.admin.reading import documents, store_time
from windlass.admin.views import moment
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.bounds import CALL_ITEMS
from windlass.core.codec import encode
from windlass.core.settings import Change, Document, Kind, Subject
from windlass.core.signature import Signature
from windlass.core.state import State
from windlass.core.strike import MOST_STRIKES, Strike, check_strike, decode_strike, strike_key
from windlass.errors import InvalidOption, StoreError

_TRIES = 5
"""Attempts at a change that others change at the same time."""


class TaskShown(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the app, with its jobs."""

    name: str
    queue: str
    revision: int
    jobs: Mapping[State, int]
    """In all queues."""
    paused: bool
    strikes: int
    """Of some of its jobs."""


class StrikeShown(msgspec.Struct, frozen=True, kw_only=True):
    """A strike in force."""

    id: str
    task: str
    where: Mapping[str, Any]
    reason: str
    by: str
    at: datetime


class Striking(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    strike: StrikeShown
    changed: bool
    """False: it was in force before."""
    freed: int = 0
    """Jobs that it held, and that can run now."""


class Strikes:
    """What can be seen of an app's tasks and done to them."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    # --- reads ----------------------------------------------------------------------------------------------

    async def tasks(self) -> list[TaskShown]:
        """The tasks of the app, by name, with how many jobs they have."""
        counts: dict[str, Counter[State]] = {}
        for row in (await self._broker.counts()).rows:
            counts.setdefault(row.task, Counter())[row.state] += row.count
        strikes = [strike async for strike in self.all()]
        return [
            TaskShown(
                name=name,
                queue=task.options.queue,
                revision=task.options.revision,
                jobs={state: counts.get(name, Counter[State]())[state] for state in State},
                paused=any(strike.task == name and not strike.where for strike in strikes),
                strikes=sum(strike.task == name and bool(strike.where) for strike in strikes),
            )
            for name, task in sorted(self._app.tasks.items())
        ]

    async def all(self) -> AsyncIterator[StrikeShown]:
        """Every strike in force, also of other apps' tasks."""
        async for document in documents(self._broker, Kind.STRIKE):
            strike = decode_strike(document.override)
            if strike is not None:
                yield _shown(strike)

    # --- writes ---------------------------------------------------------------------------------------------

    async def pause(self, task: str, *, reason: str = "", by: str | None = None) -> Striking:
        """Hold every job of a task before it starts; what runs goes on. `by`: who does it, if it is not the
        one at this terminal.
        """
        return await self.strike(task, {}, reason=reason, by=by)

    async def resume(self, task: str, *, by: str | None = None) -> Striking | None:
        """Let the jobs of a task run again; None: it was not paused. Strikes of some of its jobs stay."""
        known = self._known(task)
        paused = Strike(task=known)
        return await self._lift(paused.id, by) if await self._document(paused.id) is not None else None

    async def strike(
        self, task: str, where: Mapping[str, Any], *, reason: str = "", by: str | None = None
    ) -> Striking:
        """Hold the jobs of a task whose arguments match."""
        now = await store_time(self._broker)
        who = by or operator_name()
        strike = check_strike(Strike(task=self._known(task), where=where, reason=reason, by=who, at=now))
        self._check_places(strike)
        for _ in range(_TRIES):
            before = await self._document(strike.id)
            known = None if before is None else decode_strike(before.override)
            if known is not None and known.reason == strike.reason:
                return Striking(strike=_shown(known), changed=False)
            await self._check_room(before)
            changed = await self._broker.override(
                Subject(Kind.STRIKE, strike.id), encode(strike), 0 if before is None else before.version
            )
            if changed.change is not Change.CONFLICT:
                what = "task paused" if strike.pauses else "task struck"
                await Audit(self._broker).record(what, _chosen(strike), jobs=0, wanted=0, by=who)
                return Striking(strike=_shown(strike), changed=True)
        raise StoreError(f'the strike on task "{task}" keeps changing; try again')

    async def lift(self, strike_id: str, *, by: str | None = None) -> Striking:
        """Remove a strike, and let the jobs run that it held. `InvalidOption` names those that there are."""
        return await self._lift(strike_id, by)

    # --- parts ----------------------------------------------------------------------------------------------

    async def _lift(self, strike_id: str, by: str | None) -> Striking:
        for _ in range(_TRIES):
            document = await self._document(strike_id)
            strike = None if document is None else decode_strike(document.override)
            if document is None or strike is None:
                ids = ", ".join([each.id async for each in self.all()]) or "none"
                raise InvalidOption(f'strike "{strike_id}" is not known; strikes: {ids}')
            changed = await self._broker.override(document.subject, None, document.version)
            if changed.change is not Change.CONFLICT:
                freed = await self._free(strike_id)
                what = "task resumed" if strike.pauses else "strike lifted"
                await Audit(self._broker).record(what, _chosen(strike), jobs=freed, wanted=freed, by=by)
                return Striking(strike=_shown(strike), changed=True, freed=freed)
        raise StoreError(f'strike "{strike_id}" keeps changing; try again')

    async def _free(self, strike_id: str) -> int:
        """In steps. What a worker holds that has not heard of it yet, that worker frees when it has."""
        freed, more = 0, True
        while more:
            step = await self._broker.unhold(strike_key(strike_id), CALL_ITEMS)
            freed, more = freed + step.count, step.more
        return freed

    async def _document(self, strike_id: str) -> Document | None:
        async for document in documents(self._broker, Kind.STRIKE):
            if document.subject.name == strike_id:
                return document
        return None

    async def _check_room(self, before: Document | None) -> None:
        if before is None and len([each async for each in self.all()]) >= MOST_STRIKES:
            raise InvalidOption(
                f"there are {MOST_STRIKES} strikes already, which is the most; lift some first"
            )

    def _known(self, task: str) -> str:
        return task_named(self._app, task).name

    def _check_places(self, strike: Strike) -> None:
        """Refuse an argument that the task does not have: such a strike would hold nothing."""
        signature = self._app.signature_of(strike.task)
        if signature is None:
            return  # it lives elsewhere
        for path in strike.where:
            problem = signature.cannot_match(path.partition(".")[0])
            if problem:
                raise InvalidOption(f'"{path}": task "{strike.task}" {problem}')


def read_value(signature: Signature | None, path: str, text: str) -> Any:
    """The value of a condition, as an operator writes it: JSON, or else text. For an argument that is text it
    is always text, so that 42 is not a number there.
    """
    schema: dict[str, Any] = {} if signature is None else signature.schema()["properties"].get(path, {})
    if schema.get("type") == "string" and not text.startswith('"'):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text


def _chosen(strike: Strike) -> dict[str, str]:
    """For the record: which strike, and not the values that it looks for, which are arguments of jobs."""
    return {
        "task": strike.task,
        "strike": strike.id,
        **({"where": ", ".join(sorted(strike.where))} if strike.where else {}),
        **({"reason": strike.reason} if strike.reason else {}),
    }


def _shown(strike: Strike) -> StrikeShown:
    return StrikeShown(
        id=strike.id,
        task=strike.task,
        where=strike.where,
        reason=strike.reason,
        by=strike.by,
        at=moment(strike.at),
    )
