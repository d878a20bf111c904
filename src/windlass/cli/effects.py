"""What a command did: printed, for each job, and put on record."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence

from windlass.admin.audit import recorded
from windlass.admin.service import Service
from windlass.cli.output import progress, say, say_aside, say_json
from windlass.core.operate import Effect, Operated

_SHOWN = 20
"""Failures that are printed one by one; the rest is counted."""


async def put_on_record(
    service: Service,
    what: str,
    chosen: Mapping[str, str],
    *,
    jobs: int = 0,
    wanted: int = 0,
    reason: str = "",
) -> None:
    """Put in the audit log what was done. If the store cannot keep it, the command says so: what is done is
    done.
    """
    failed = await recorded(service.audit, what, chosen, jobs=jobs, wanted=wanted, reason=reason)
    if failed:
        say_aside(f"windlass: this is missing in the audit log: {failed}")


async def record_effects(
    service: Service,
    batches: AsyncIterator[Sequence[Operated]],
    verb: str,
    chosen: Mapping[str, str],
    *,
    total: int,
    json: bool,
    reason: str = "",
) -> int:
    """The same as `show_effects`, and put it in the audit log, also if it was interrupted."""
    counted = Counted(batches)
    try:
        return await show_effects(counted.batches(), verb, total=total, json=json)
    finally:
        await put_on_record(service, verb, chosen, jobs=counted.count, wanted=total, reason=reason)


class Counted:
    """Counts the jobs that were changed, as it happens."""

    def __init__(self, batches: AsyncIterator[Sequence[Operated]]) -> None:
        self._batches = batches
        self.count = 0

    async def batches(self) -> AsyncIterator[Sequence[Operated]]:
        """The same batches."""
        async for batch in self._batches:
            self.count += sum(_is_done(operated) for operated in batch)
            yield batch


async def show_effects(
    batches: AsyncIterator[Sequence[Operated]], verb: str, *, total: int, json: bool
) -> int:
    """Print what was done, with a progress bar meanwhile; the exit code is 1 if any job was not changed."""
    counts: Counter[Effect] = Counter()
    failed: list[Operated] = []
    with progress(verb, total, shown=not json) as advance:
        async for batch in batches:
            counts.update(operated.effect for operated in batch)
            wrong = [operated for operated in batch if not _is_done(operated)]
            failed += wrong[: _SHOWN - len(failed)]
            advance(len(batch))
            if json:
                for operated in batch:
                    say_json(operated)
    left = sum(count for effect, count in counts.items() if effect not in _DONE)
    if not json:
        _summarise(counts, verb, failed, left)
    return 1 if left else 0


_DONE = frozenset((Effect.APPLIED, Effect.FLAGGED))


def _is_done(operated: Operated) -> bool:
    return operated.effect in _DONE


def _summarise(counts: Counter[Effect], verb: str, failed: Sequence[Operated], left: int) -> None:
    say(f"{counts[Effect.APPLIED]:,} {verb}")
    if counts[Effect.FLAGGED]:
        say(f"{counts[Effect.FLAGGED]:,} running: their workers were asked to stop them")
    for operated in failed:
        say_aside(f"windlass: job {operated.job} was not {verb}: {_why(operated)}")
    if left > len(failed):
        say_aside(f"windlass: {left - len(failed):,} more were not {verb}")


def _why(operated: Operated) -> str:
    match operated.effect:
        case Effect.NOT_FOUND:
            return "there is no such job"
        case Effect.CONFLICT:
            return f"job {operated.by} holds its unique key; finish or cancel that one first"
        case _:
            return f"it is {operated.state}"
