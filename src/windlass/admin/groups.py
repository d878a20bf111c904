"""Dead letters grouped by what killed them: one bug is one group, however many jobs it took."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import msgspec

from windlass.admin.views import DeadShown, ErrorShown
from windlass.core.outcome import Error
from windlass.core.units import JobId

MOST_GROUPS = 1_000
"""Groups that are told apart; beyond them, what is new is counted under "(other)"."""
OTHERS = ("(other)", "(other)")
"""Task and fingerprint of that: of no dead letter, so that nothing can be done to them as one."""


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one task with one cause."""

    task: str
    fingerprint: str
    """Of the error's class and the functions it came through; without an error, of the reason."""
    error: str
    """The newest, as text."""
    reason: str
    count: int
    first: datetime | None
    last: datetime | None
    newest: JobId
    """A dead letter of the group, to look at."""


class Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of dead letters, the largest first."""

    groups: Sequence[DeadGroup]
    examined: int
    """Dead letters that were looked at."""
    more: bool
    """There are more of them than that: counts are too low."""


def mark(error: Error | ErrorShown | None, reason: str | None) -> str:
    """What tells the group of a dead letter from the others of its task. Never empty: an empty filter would
    choose them all.
    """
    found = "" if error is None else error.fingerprint or error.type
    return found or reason or "unknown"


async def grouped(
    letters: AsyncIterator[DeadShown], *, sees: Callable[[DeadShown], bool], most: int | None
) -> Grouped:
    """Dead letters that the reader sees, by task and cause; `most` is how many are looked at."""
    groups: dict[tuple[str, str], DeadGroup] = {}
    examined = 0
    async for letter in letters:
        if most is not None and examined >= most:
            return Grouped(groups=_sorted(groups), examined=examined, more=True)
        examined += 1
        if not sees(letter):
            continue
        error = letter.error
        key = (letter.task, mark(error, letter.reason))
        if key not in groups and len(groups) >= MOST_GROUPS:
            key = OTHERS
        found = groups.get(key)
        at = letter.finished_at
        is_newer = found is None or (at is not None and (found.last is None or at >= found.last))
        text = "" if error is None else f"{error.type}: {error.message}"
        groups[key] = DeadGroup(
            task=key[0],
            fingerprint=key[1],
            error=text if is_newer or found is None else found.error,
            reason=(letter.reason or "") if is_newer or found is None else found.reason,
            count=1 if found is None else found.count + 1,
            first=_least(None if found is None else found.first, at),
            last=at if is_newer or found is None else found.last,
            newest=letter.id if is_newer or found is None else found.newest,
        )
    return Grouped(groups=_sorted(groups), examined=examined, more=False)


def _sorted(groups: dict[tuple[str, str], DeadGroup]) -> list[DeadGroup]:
    return sorted(groups.values(), key=lambda group: (-group.count, group.task, group.fingerprint))


def _least(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)
