"""What an app has around its tasks: the decorators, and what its workers and producers are told of it."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from windlass.client.namespaces import Namespaces
from windlass.client.outgoing import OnEnqueue, hooked
from windlass.clock import Clock
from windlass.config import Config
from windlass.core.job import NewJob
from windlass.errors import InvalidOption
from windlass.worker.surroundings import (
    Hook,
    Manager,
    Middleware,
    Surroundings,
    check_hook,
    check_middleware,
    opener,
)

Lifespan: TypeAlias = Callable[[Any], Manager] | Callable[[], Manager]
_H = TypeVar("_H", bound=Hook)
_M = TypeVar("_M", bound=Middleware)
_E = TypeVar("_E", bound=OnEnqueue)


class Around(Namespaces):
    """What is around the tasks of an app, in all its namespaces."""

    def __init__(
        self, config: Config, *, name: str, revision: int, clock: Clock | None, lifespan: Lifespan | None
    ) -> None:
        super().__init__(config, name=name, revision=revision, clock=clock)
        self.surroundings = Surroundings()
        self._on_enqueue: list[OnEnqueue] = []
        if lifespan is not None:
            self.surroundings.open = opener(lifespan, self)

    def on_start(self, function: _H, /) -> _H:
        """Call a function (`def` or `async def`) in each process of a worker, after the lifespan was entered
        and before the first job.
        """
        check_hook(function, "on_start")
        self.surroundings.starts.append(function)
        return function

    def on_stop(self, function: _H, /) -> _H:
        """Call a function (`def` or `async def`) in each process of a worker, after its last job and before
        the lifespan is left.
        """
        check_hook(function, "on_stop")
        self.surroundings.stops.append(function)
        return function

    def middleware(self, function: _M, /) -> _M:
        """Put code around every run of every task: `async def name(job, run): ... return await run()`.

        The first middleware that is registered is the outermost. It runs on the loop. For a `def` task
        `run()` waits for the thread.
        """
        check_middleware(function)
        self.surroundings.middleware.append(function)
        return function

    def on_enqueue(self, function: _E, /) -> _E:
        """Call a function with each job that this app is about to send. It may set the lane, add tags and
        headers, or raise to refuse.
        """
        check_hook(function, "on_enqueue", ["job"])
        if inspect.iscoroutinefunction(function):
            name = getattr(function, "__qualname__", function)
            raise InvalidOption(f"app.on_enqueue calls {name}() from blocking code, too: write it as def")
        self._on_enqueue.append(function)
        return function

    def outgoing(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Jobs that are about to be sent, as `on_enqueue` leaves them."""
        return hooked(self._on_enqueue, jobs) if self._on_enqueue else jobs

    @property
    def is_hooked(self) -> bool:
        """Whether each job has to be looked at before it is sent."""
        return bool(self._on_enqueue)
