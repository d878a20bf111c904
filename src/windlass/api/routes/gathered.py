"""Every module with routes, and so every route."""

from collections.abc import Sequence
from typing import Any

from windlass.api.routes import (
    dead,
    events,
    explain,
    flows,
    health,
    history,
    jobs,
    lanes,
    leases,
    metrics,
    overview,
    queues,
    scale,
    schedules,
    session,
    tasks,
    workers,
)

MODULES = (
    dead,
    events,
    explain,
    flows,
    health,
    history,
    jobs,
    lanes,
    leases,
    metrics,
    overview,
    queues,
    scale,
    schedules,
    session,
    tasks,
    workers,
)


def all_routes() -> Sequence[Any]:
    """The routes of all modules: each has them as `ROUTES`, handlers or controllers."""
    return [route for module in MODULES for route in module.ROUTES]
