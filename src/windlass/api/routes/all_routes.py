"""Every module with routes, and so every route."""

from collections.abc import Sequence
from typing import Any

from windlass.api import openapi
from windlass.api.routes import (
    dashboard,
    dead,
    events,
    explain,
    flows,
    forget,
    health,
    history,
    intakes,
    job_lists,
    jobs,
    lanes,
    leases,
    metrics,
    overview,
    queues,
    relays,
    scale,
    schedules,
    session,
    tasks,
    values,
    webhooks,
    workers,
)

MODULES = (
    dashboard,
    dead,
    events,
    explain,
    flows,
    forget,
    health,
    history,
    intakes,
    job_lists,
    jobs,
    lanes,
    leases,
    metrics,
    openapi,
    overview,
    queues,
    relays,
    scale,
    schedules,
    session,
    tasks,
    values,
    webhooks,
    workers,
)


def all_routes() -> Sequence[Any]:
    """The routes of all modules: each has them as `ROUTES`, handlers or controllers."""
    return [route for module in MODULES for route in module.ROUTES]
