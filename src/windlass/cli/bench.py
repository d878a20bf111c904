"""`windlass bench`: measure Windlass on your own store."""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from windlass.bench import URL
from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.output import Column, each, say_aside, show
from windlass.config import configure

if TYPE_CHECKING:
    from windlass.bench.measures import Figure

Url = Annotated[
    str | None,
    Parameter(
        name="--url", help="The store; by default a SQLite file in a temporary folder of this machine."
    ),
]
Jobs = Annotated[int, Parameter(help="Jobs for each measurement.", show_default=True)]
Payload = Annotated[int, Parameter(help="Bytes of each job's payload.", show_default=True)]
MOST_JOBS = 10_000_000
MOST_BYTES = 1_000_000


def run_bench(
    *, url: Url = None, jobs: Jobs = 20_000, payload: Payload = 200, json: given.Json = False
) -> int:
    """Measure enqueue, drain and time to start, in a separate namespace. Do not run it on a store in use."""
    if not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"--jobs must be from 1 to {MOST_JOBS}, not {jobs}")
    if not 0 <= payload <= MOST_BYTES:
        raise UsageError(f"--payload must be from 0 to {MOST_BYTES}, not {payload}")
    if url is not None and configure({"url": url}, {}).url.startswith("memory:"):
        raise UsageError(
            "a memory store lives inside one process: name a store that workers can share, such as --url sqlite:///FILE"
        )
    say_aside(f"measuring with {jobs} jobs of {payload} bytes")
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        figures = _measured(url or f"sqlite:///{folder}/windlass.db", Path(folder), jobs, payload)
    asyncio.run(show(each(figures), _COLUMNS, json=json, nothing=""))
    return 0


def _measured(url: str, folder: Path, jobs: int, payload: int) -> list["Figure"]:
    os.environ[URL] = url
    from windlass.bench.measures import measures  # noqa: PLC0415 - opens the store that the variable names

    return list(measures(url, folder, jobs, payload))


_COLUMNS: Sequence[Column["Figure"]] = (
    Column("measure", lambda figure: figure.measure),
    Column("jobs/s", lambda figure: _number(figure.rate, 0), right=True),
    Column("p50 ms", lambda figure: _number(figure.p50_ms, 2), right=True),
    Column("p99 ms", lambda figure: _number(figure.p99_ms, 2), right=True),
)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
