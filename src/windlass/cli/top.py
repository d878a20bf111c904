"""`windlass top`: a live overview in the terminal."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from windlass.admin.overview import Overview
from windlass.admin.service import Service
from windlass.admin.views import QueueShown
from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.opening import with_service
from windlass.cli.output import is_terminal, say_json
from windlass.cli.text import age, clock, one_line, since

if TYPE_CHECKING:
    from rich.console import RenderableType

LEAST_EVERY = 0.2
_LEVELS = {"problem": "bold red", "warning": "yellow", "note": "dim"}
_STATES = ("ready", "running", "scheduled", "blocked", "dead", "done", "cancelled")
_STYLES = {"ready": "cyan", "running": "blue", "dead": "red", "done": "green"}


def run_top(
    app: given.App,
    /,
    *,
    every: Annotated[float, Parameter(help="Seconds between two readings.", show_default=True)] = 2.0,
    once: Annotated[bool, Parameter(name="--once", help="Print once and exit.")] = False,
    json: given.Json = False,
) -> int:
    """Show problems, queues and workers, live until Ctrl-C. In a pipe it prints once."""
    if every < LEAST_EVERY:
        raise UsageError(f"--every must be at least {LEAST_EVERY:g} s, not {every:g}")

    async def work(service: Service) -> None:
        if json:
            await _tell(service, every=None if once else every)
        else:
            await _show(service, every=every if is_terminal() and not once else None)

    try:
        return with_service(app, work)
    except KeyboardInterrupt:
        return 0  # the way out of it


async def _tell(service: Service, every: float | None) -> None:
    """Print one JSON object for each reading, for programs."""
    say_json(await service.overview())
    while every is not None:
        await asyncio.sleep(every)
        say_json(await service.overview())


async def _show(service: Service, every: float | None) -> None:
    """Draw the overview, once or again and again."""
    from rich.console import Console  # noqa: PLC0415 - only a person needs it
    from rich.live import Live  # noqa: PLC0415

    console = Console(highlight=False)
    pace = Pace()
    overview = await service.overview()
    if every is None:
        console.print(picture(overview, pace.rates(overview), height=None))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(picture(overview, pace.rates(overview), height=console.height), refresh=True)
            await asyncio.sleep(every)
            overview = await service.overview()


class Pace:
    """Finished jobs per second of each queue, from one reading to the next."""

    def __init__(self) -> None:
        self._before: Overview | None = None

    def rates(self, overview: Overview) -> Mapping[str, float | None]:
        """Return the rate of each queue; None for a queue that the reading before did not have."""
        before, self._before = self._before, overview
        if before is None:
            return {}
        passed = (overview.now - before.now).total_seconds()
        known = {queue.name: _ended(queue) for queue in before.queues}
        return {
            queue.name: max(0.0, (_ended(queue) - known[queue.name]) / passed)
            for queue in overview.queues
            if passed > 0 and queue.name in known
        }


def _ended(queue: QueueShown) -> int:
    return queue.jobs["done"] + queue.jobs["cancelled"]


def picture(overview: Overview, rates: Mapping[str, float | None], *, height: int | None) -> "RenderableType":
    """Return the overview for `rich`, cut to what fits a screen of this height."""
    from rich.console import Group  # noqa: PLC0415 - only a person needs it
    from rich.text import Text  # noqa: PLC0415

    head = Text.assemble(
        ("windlass ", "bold"),
        one_line(f"{overview.app or 'app'} on {overview.store}, namespace {overview.namespace}"),
        (f"  {clock(overview.now)}", "dim"),
    )
    problems = _problems(overview, None if height is None else max(3, height // 4))
    room = None if height is None else max(3, height - len(problems) - 9)
    return Group(
        head,
        Text(),
        *problems,
        Text(),
        _states(overview),
        _fleet(overview),
        Text(),
        _queues(overview, rates, room),
    )


def _problems(overview: Overview, most: int | None) -> list["RenderableType"]:
    from rich.text import Text  # noqa: PLC0415 - only a person needs it

    if not overview.problems:
        return [Text("all is well", style="green")]
    lines: list[RenderableType] = []
    for problem in overview.problems[:most]:
        text = Text.assemble((f"{problem.level:<8} ", _LEVELS[problem.level]), one_line(problem.text))
        if problem.do:
            text.append(f"; {one_line(problem.do)}", style="dim")
        text.no_wrap, text.overflow = most is not None, "ellipsis"  # on a screen, height counts
        lines.append(text)
    left = len(overview.problems) - len(lines)
    if left > 0:
        lines.append(Text(f"and {left:,} more", style="dim"))
    return lines


def _states(overview: Overview) -> "RenderableType":
    from rich.text import Text  # noqa: PLC0415 - only a person needs it

    line = Text()
    for state in _STATES:
        count = overview.jobs.get(state, 0)
        line.append(f"{count:,} ", style=f"bold {_STYLES.get(state, '')}".strip() if count else "dim")
        line.append(f"{state}   ", style="" if count else "dim")
    return line


def _fleet(overview: Overview) -> "RenderableType":
    from rich.text import Text  # noqa: PLC0415 - only a person needs it

    workers = overview.workers
    text = f"{workers.alive:,} workers, {workers.busy:,} of {workers.slots:,} slots in use"
    line = Text(text, style="" if workers.alive else "red")
    if workers.crashed:
        line.append(f", {workers.crashed:,} crashed within the hour", style="yellow")
    schedules = overview.schedules
    if schedules.next_at is not None:
        soon = since(schedules.next_at, overview.now)
        line.append(f"   next schedule {one_line(schedules.next_name or '')} {soon}", style="dim")
    return line


def _queues(overview: Overview, rates: Mapping[str, float | None], most: int | None) -> "RenderableType":
    from rich.table import Table  # noqa: PLC0415 - only a person needs it
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("queue", no_wrap=True, overflow="ellipsis")
    for title in ("ready", "running", "later", "dead", "oldest", "ends/s", "limit"):
        table.add_column(title, justify="right", no_wrap=True)
    busiest = sorted(
        overview.queues, key=lambda queue: (-queue.jobs["ready"] - queue.jobs["running"], queue.name)
    )
    for queue in busiest[:most]:
        rate = rates.get(queue.name)
        limit = queue.settings.get("concurrency")
        cells = (
            f"{queue.jobs['ready']:,}",
            f"{queue.jobs['running']:,}",
            f"{queue.jobs['scheduled'] + queue.jobs['blocked']:,}",
            f"{queue.jobs['dead']:,}",
            "" if queue.oldest is None else age(queue.oldest),
            "" if rate is None else f"{rate:,.1f}",
            "" if limit is None else f"{limit:,}",
        )
        name = Text(one_line(queue.name))
        if queue.paused:
            name.append(" paused", style="yellow")
        dead = {3: "red"} if queue.jobs["dead"] else {}
        table.add_row(name, *(Text(cell, style=dead.get(index, "")) for index, cell in enumerate(cells)))
    if most is not None and len(busiest) > most:
        table.add_row(Text(f"and {len(busiest) - most:,} more", style="dim"))
    return table
