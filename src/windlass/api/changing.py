"""Changing a job that waits, or a dead letter: what of it, and how that is refused."""

from typing import Any

import msgspec

from windlass.admin.jobs import JobChange
from windlass.admin.service import Service
from windlass.api.bound_keys import visible_task
from windlass.api.context import Context
from windlass.api.problems import field, invalid
from windlass.core.job import JobDetail
from windlass.core.operate import Operated

_FIELDS = ("arguments", "priority", "max_attempts", "tags")


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New values for a job; what is left out stays."""

    arguments: dict[str, Any] | None = None
    """All arguments, by name."""
    priority: int | None = None
    """From -100 to 100, higher first; a ready job keeps its turn within its new band."""
    max_attempts: int | None = None
    tags: list[str] | None = None
    """All of them."""


def changes(asked: Change) -> dict[str, str]:
    """What is to be new, for the record: never the values."""
    return {name: "new" for name in _FIELDS if getattr(asked, name) is not None}


async def change_job(context: Context, service: Service, found: JobDetail, asked: Change) -> Operated:
    """Change a job. 422 names the field that cannot be used. The answer says whether the state of the job
    allowed the change.
    """
    said = changes(asked)
    if not said:
        raise invalid(f"say what to change: {', '.join(_FIELDS)}")
    change = JobChange(
        arguments=None if asked.arguments is None else msgspec.json.encode(asked.arguments),
        priority=asked.priority,
        max_attempts=asked.max_attempts,
        tags=asked.tags,
    )
    if asked.arguments is not None and context.caller.is_bound:
        # With other arguments it is another call: only of a task that this key may call.
        visible_task(context.app, context.caller, found.task)
    with field(_guilty(said)):
        return await service.jobs.edit(found, change)


def _guilty(said: dict[str, str]) -> str:
    """The one field that was said, where that is clear; a refusal names it in words in any case."""
    return next(iter(said)) if len(said) == 1 else "body"
