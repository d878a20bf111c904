"""Overriding the settings of a queue or a lane: an override wins over the declaration until it is reset."""

from typing import cast

from windlass.admin.reading import document_of
from windlass.broker.contract import Broker
from windlass.core.settings import Change, Changed, Document, LaneSettings, QueueSettings, Subject, overlay
from windlass.errors import InvalidOption, StoreError

_TRIES = 5
"""Attempts at a change that others change at the same time."""


async def override(broker: Broker, subject: Subject, settings: QueueSettings | LaneSettings) -> None:
    """Override what these settings name; other overrides stay."""
    await _change(broker, subject, settings)


async def reset(broker: Broker, subject: Subject) -> bool:
    """Let the declared settings count again. Returns False if nothing was overridden."""
    return await _change(broker, subject, None)


async def _change(broker: Broker, subject: Subject, settings: QueueSettings | LaneSettings | None) -> bool:
    for _ in range(_TRIES):
        document = await document_of(broker, subject)
        if settings is None and (document is None or document.override is None):
            return False
        body = settings if settings is None or document is None else _merged(document, settings)
        changed = await broker.override(subject, body, 0 if document is None else document.version)
        if changed.change is not Change.CONFLICT:
            _check(subject, changed)
            return True
    raise StoreError(f'the settings of {subject.kind} "{subject.name}" keep changing; try again')


def _merged(document: Document, settings: QueueSettings | LaneSettings) -> QueueSettings | LaneSettings:
    if isinstance(settings, QueueSettings):
        return cast("QueueSettings", overlay(cast("QueueSettings | None", document.override), settings))
    return cast("LaneSettings", overlay(cast("LaneSettings | None", document.override), settings))


def _check(subject: Subject, changed: Changed) -> None:
    if changed.change is Change.IN_USE:
        raise InvalidOption(
            f'queue "{subject.name}": order, age_step and sequence cannot change while it has '
            "unfinished jobs; drain it first"
        )
    if changed.change not in (Change.APPLIED, Change.UNCHANGED):
        raise InvalidOption(f'{subject.kind} "{subject.name}" was not changed: {changed.change}')
