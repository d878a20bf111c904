"""What an app has around its tasks: a lifespan for each process, and middleware for each run."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeAlias

from windlass.core.option import shown
from windlass.errors import InvalidOption
from windlass.worker.current import RunningJob

Manager: TypeAlias = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
Proceed: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs what is further in, and gives what the task returns."""
Hook: TypeAlias = Callable[[], object]


class Middleware(Protocol):
    """Code around every run: `async def name(job, run): ... return await run()`."""

    def __call__(self, job: RunningJob, run: Proceed, /) -> Awaitable[Any]:
        """Its value is what the job returned; what it raises is what the job raised."""
        ...


class Surroundings:
    """Shared by an app and its branches in other namespaces."""

    def __init__(self) -> None:
        self.open: Callable[[], Manager] | None = None
        """Makes the context manager of one process; None: the app has no lifespan."""
        self.starts: list[Hook] = []
        """Called when it was entered."""
        self.stops: list[Hook] = []
        """Called before it is left."""
        self.middleware: list[Middleware] = []
        """The outermost first."""

    @property
    def in_a_process(self) -> bool:
        """Whether something has to be done when a process begins or ends."""
        return self.open is not None or bool(self.starts or self.stops)


def opener(lifespan: object, app: object) -> Callable[[], Manager]:
    """What makes the context manager of a lifespan; `InvalidOption`: it is no function of the app, or of
    nothing.
    """
    function: Any = lifespan
    if not callable(lifespan) or isinstance(lifespan, type):
        raise InvalidOption(
            f"lifespan is a function that gives a context manager, not {shown(lifespan)}; write it with "
            "@contextlib.asynccontextmanager"
        )
    if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
        kind = "asynccontextmanager" if inspect.isasyncgenfunction(lifespan) else "contextmanager"
        raise InvalidOption(
            f"lifespan {_called(lifespan)} is a generator: decorate it with @contextlib.{kind}"
        )
    if inspect.iscoroutinefunction(lifespan):
        raise InvalidOption(
            f"lifespan {_called(lifespan)} is a coroutine function, and ends before the first job: write it "
            "with @contextlib.asynccontextmanager and a yield, or use @app.on_start"
        )
    if _accepts(function, app):
        return lambda: function(app)
    if _accepts(function):
        return function
    raise InvalidOption(
        f"lifespan {_called(lifespan)} is called with the app or without arguments: write its parameters as "
        "(app) or ()"
    )


def check_middleware(function: object) -> None:
    """Refuse what cannot be called around a run."""
    if not callable(function):
        raise InvalidOption(f"app.middleware takes a function, not {shown(function)}")
    written = f"async def {getattr(function, '__name__', 'name')}(job, run)"
    if not inspect.iscoroutinefunction(function):
        raise InvalidOption(f"middleware {_called(function)} is no coroutine function: write {written}")
    if not _accepts(function, None, None):
        raise InvalidOption(
            f"middleware {_called(function)} takes two arguments, the job and run: write {written}"
        )


def check_hook(function: object, name: str, takes: Sequence[str] = ()) -> None:
    """Refuse what cannot be called with so many arguments."""
    if not callable(function):
        raise InvalidOption(f"app.{name} takes a function, not {shown(function)}")
    if not _accepts(function, *takes):
        given = ", ".join(takes)
        raise InvalidOption(
            f"app.{name} calls {_called(function)} with {given or 'no argument'}: "
            f"write def {getattr(function, '__name__', 'name')}({given})"
        )


def _accepts(function: Any, *given: object) -> bool:
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        return False
    except ValueError:  # one of C, whose parameters nobody knows
        return True
    return True


def _called(function: object) -> str:
    return f"{getattr(function, '__qualname__', type(function).__qualname__)}()"
