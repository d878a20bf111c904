"""`windlass export` and `windlass import`: waiting jobs and dead letters as lines of JSON."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.admin.transfer import DIED_OF, Dead
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.failure import UsageError
from windlass.cli.jobs import States
from windlass.cli.opening import with_service
from windlass.cli.output import progress, say, say_aside, say_json
from windlass.core.query import JobQuery
from windlass.core.state import State


def export_jobs(
    app: given.App,
    /,
    *,
    state: States = (),
    queue: given.Queue = None,
    task: given.Task = None,
    lane: given.Lane = None,
) -> int:
    """Print waiting jobs and dead letters as JSON lines, with their arguments, including secrets.

    Running jobs are left out. For a complete backup, pause the queues first and wait until no job runs.
    """
    options = {"states": ", ".join(state), "queue": queue, "task": task, "lane": lane}
    chosen = {name: value for name, value in options.items() if value} or {"all": "yes"}
    query = JobQuery(
        queue=queue, task=task, lane=lane, states=frozenset(state) if state else frozenset(State)
    )

    async def work(service: Service) -> None:
        if queue is not None:
            await service.queues.check(queue)
        count = 0
        left: list[str] = []
        try:
            async for line in service.exported(query, left=left.append):
                say(msgspec.json.encode(line).decode())
                count += 1
        finally:
            await put_on_record(service, "exported, with secrets", chosen, jobs=count, wanted=count)
        say_aside(f"{count:,} job{'' if count == 1 else 's'}")
        if left:
            say_aside(f"{len(left):,} of Windlass itself left out: webhooks that are not delivered yet")

    return with_service(app, work)


def import_jobs(
    app: given.App,
    file: Annotated[Path, Parameter(help="The file that export wrote.")],
    /,
    *,
    dead: Annotated[
        Dead,
        Parameter(
            help="Dead letters: keep them as dead letters, leave them out, or enqueue them to run again.",
            show_default=True,
        ),
    ] = "keep",
    json: given.Json = False,
) -> int:
    """Enqueue the jobs of an exported file, with old ids. Jobs that the store has already are skipped."""
    if not file.is_file():
        raise UsageError(f"there is no file {file}")

    async def work(service: Service) -> None:
        taken = 0

        def tell(count: int) -> None:
            nonlocal taken
            taken += count
            told(count)

        with file.open("rb") as opened:
            total = sum(1 for _ in opened)
            opened.seek(0)
            try:
                with progress("imported", total, shown=not json) as told:
                    done = await service.imported(opened, dead=dead, told=tell)
                taken = done.created
            finally:
                await put_on_record(service, "imported", {"file": file.name}, jobs=taken, wanted=total)
        if json:
            say_json(done)
            return
        say(f"{done.created:,} imported, {done.known:,} already in the store")
        if done.dead:
            say_aside(
                f"{_letters(done.dead)} of them, without runs and attempts, which no store takes over; what "
                f"each died of is in its header {DIED_OF}"
            )
        if done.left:
            say_aside(f"{_letters(done.left)} left out; --dead keep takes them over")

    return with_service(app, work)


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"
