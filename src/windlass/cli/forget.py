"""`windlass forget`: remove what is kept under a tag, everywhere."""

from collections.abc import Callable
from typing import Annotated

import msgspec
from cyclopts import Parameter

from windlass.admin.audit import LONGEST_REASON
from windlass.admin.forgetting import Forgetting, Forgotten
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.failure import UsageError
from windlass.cli.opening import with_service
from windlass.cli.output import confirm, progress, say, say_aside, say_json

Tag = Annotated[str, Parameter(help='The tag of the person, such as "user:42".')]
DryRun = Annotated[bool, Parameter(name="--dry-run", help="Only count the jobs that have the tag.")]
Reason = Annotated[str, Parameter(help="Why you do it, for the audit log.")]


def forget_tag(
    app: given.App,
    /,
    *,
    tag: Tag,
    dry_run: DryRun = False,
    reason: Reason = "",
    yes: given.Yes = False,
    json: given.Json = False,
) -> int:
    """Remove the jobs with a tag; blank what history and archive hold of them. Exit code 1: some are left.

    Waiting jobs are cancelled first. Running ones are asked to stop, and left: run it again when they have
    ended. It covers every namespace of the app, unless APP names one (module:app@namespace).
    """
    if len(reason) > LONGEST_REASON:
        raise UsageError(f"--reason has at most {LONGEST_REASON} characters, not {len(reason):,}")

    async def work(service: Service) -> int:
        apps = [service.app] if "@" in app else service.app.namespaces.values()
        services = [service if place is service.app else await Service.of(place) for place in apps]
        works = [(each, each.forgetting(tag)) for each in services]
        wanted = [await forgetting.count() for _, forgetting in works]
        jobs, waiting, running = (
            sum(getattr(found, name) for found in wanted) for name in ("jobs", "waiting", "running")
        )
        if dry_run:
            counts = {"tag": tag, "jobs": jobs, "waiting": waiting, "running": running}
            say_json(counts) if json else say(
                f"{jobs:,} jobs, {waiting:,} of them waiting, {running:,} running"
            )
            return 0
        question = f"forget {jobs:,} job{'' if jobs == 1 else 's'} with tag {tag}"
        if not confirm(f"{question} ({waiting:,} waiting, {running:,} running), and its history", yes=yes):
            say_aside("nothing was done")
            return 0
        done = Forgotten()
        with progress("forgotten", jobs, shown=not json) as advance:
            for (each, forgetting), found in zip(works, wanted, strict=True):
                done = done.plus(await _forget(each, forgetting, tag, found.jobs, reason, advance))
        if json:
            say_json({"tag": tag, **msgspec.structs.asdict(done)})
        else:
            say(
                f"{done.jobs:,} jobs forgotten, {done.cancelled:,} of them cancelled first; blanked: "
                f"{done.history:,} rows of the history, {done.archive:,} entries of the archive"
            )
        if done.left:
            say_aside(f"windlass: {done.left}: run this again when they have ended")
        return 1 if done.left else 0

    return with_service(app, work)


async def _forget(
    service: Service,
    forgetting: Forgetting,
    tag: str,
    wanted: int,
    reason: str,
    advance: Callable[[int], object],
) -> Forgotten:
    """Forget it in one namespace; what was done is in its audit log, also if it was interrupted."""
    try:
        async for answers in forgetting.steps():
            advance(len(answers))
    finally:
        done = forgetting.done
        said = {"tag": tag, **done.words()}
        await put_on_record(service, "forgotten", said, jobs=done.jobs, wanted=wanted, reason=reason)
    return forgetting.done
