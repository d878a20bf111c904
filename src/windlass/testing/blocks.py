"""`with testing(app) as t:` and `with inline(app) as t:`: for a block the app has a store of its own."""

import contextlib
from collections.abc import Callable, Generator
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from windlass.broker.contract import Options
from windlass.client.app import Windlass
from windlass.client.around import Lifespan
from windlass.client.connection import Connection
from windlass.client.options import check_known
from windlass.clock import ManualClock
from windlass.core.duration import LONGEST
from windlass.core.option import shown
from windlass.core.settings import Retention
from windlass.errors import InvalidOption
from windlass.testing.bench import AsyncBench, Bench, BenchBase
from windlass.testing.inlining import InlineRuns, inline_connection
from windlass.testing.invoking import InThread, Invoke, OnLoop
from windlass.testing.store import TestStore, at_once
from windlass.testing.timeline import Timeline
from windlass.testing.times import beginning
from windlass.testing.worker import TestWorker
from windlass.worker.surroundings import opener

__tracebackhide__ = True  # a test that fails is shown without these frames

_B = TypeVar("_B", bound=BenchBase)

JITTER_MOST = 1 - 2**-53
"""A draw lies below 1."""


class BlockOptions(TypedDict, total=False):
    """What `testing` and `inline` take besides the app."""

    now: datetime | None
    """Where the clock starts; None: at the present."""
    jitter: float
    """From 0 to 1: how much of its possible wait a retry waits."""
    raises: bool
    """Whether what a task raises is raised to the test."""
    schedules: bool
    """Whether schedules fire when the clock moves."""
    follow: Callable[[datetime], object] | None
    """Called with the time whenever it moves."""
    lifespan: Lifespan | None
    """Entered in place of the app's; None: the app's own."""


class Block:
    """The block of a test."""

    def __init__(self, app: Windlass, *, inline: bool, options: BlockOptions) -> None:
        check_known(options, BlockOptions)
        if not isinstance(app, Windlass):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"testing takes an app, as in testing(app), not {shown(app)}")
        jitter = options.get("jitter", 1.0)
        if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"jitter must be a number from 0 to 1, not {shown(jitter)}")
        self._app = app
        self._inline = inline
        self._options = options
        self._jitter = min(float(jitter), JITTER_MOST)
        self._open: _Open[Any] | None = None

    def __enter__(self) -> Bench:
        return self._enter(Bench, on_loop=False)

    async def __aenter__(self) -> AsyncBench:
        return self.enter_async()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._open is not None
        self._open.close()
        self._open = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._open is not None
        await self._open.leave()
        self.__exit__(kind, error, trace)

    def enter_async(self) -> AsyncBench:
        """For who cannot await: nothing of it needs a loop."""
        return self._enter(AsyncBench, on_loop=True)

    def _enter(self, kind: type[_B], *, on_loop: bool) -> _B:
        if self._open is not None:
            raise InvalidOption("this block is open already; make another one with testing(app)")
        opened = self._open = _Open(
            kind, self._app, self._options, on_loop=on_loop, inline=self._inline, jitter=self._jitter
        )
        return opened.bench


class _Open(Generic[_B]):
    """What there is while the block lasts."""

    def __init__(
        self,
        kind: type[_B],
        app: Windlass,
        options: BlockOptions,
        *,
        on_loop: bool,
        inline: bool,
        jitter: float,
    ) -> None:
        self._in_thread, self._on_loop = InThread(app), OnLoop(app)
        invoke: Invoke = self._on_loop if on_loop else self._in_thread
        clock = ManualClock(beginning(options.get("now")))
        self._store = TestStore(
            clock,
            _kept(app.config.broker_options()),
            is_elsewhere=lambda task: task in app.tasks and app.tasks[task].options.external,
        )
        self._app = app
        self._own_lifespan = app.surroundings.open
        lifespan = options.get("lifespan")
        opened = self._own_lifespan if lifespan is None else opener(lifespan, app)
        self._places = tuple(app.namespaces.values())
        for place in self._places:
            at_once(place.declare(self._store))
        raises = options.get("raises", True)
        self._worker = TestWorker(app, self._store, clock, invoke, jitter=jitter)
        self._timeline = Timeline(
            app,
            self._store,
            clock,
            self._worker,
            schedules=options.get("schedules", True),
            follow=options.get("follow"),
        )
        self.bench = kind(app, self._store, self._timeline, self._worker, raises=raises)
        self._own = tuple(place.connection for place in self._places)
        runs = InlineRuns(self._timeline, self._worker, self._in_thread, self._on_loop, raises=raises)
        for place, own in zip(self._places, self._own, strict=True):
            # One store for all namespaces of the app: no two queues of it have the same name.
            place.connection = (
                inline_connection(own, self._store, runs) if inline else own.to(self._store, Connection)
            )
        app.surroundings.open = opened

    async def leave(self) -> None:
        """Leave the lifespan on the loop of the test."""
        await self._on_loop.leave()

    def close(self) -> None:
        """Leave the lifespan, and give the app its own store back."""
        self._in_thread.close()
        self._on_loop.close()
        self._app.surroundings.open = self._own_lifespan
        for place, own in zip(self._places, self._own, strict=True):
            connection, place.connection = place.connection, own
            connection.shut()
        self._worker.close()


def _kept(options: Options) -> Options:
    """A test sees everything that happened in it, however far the clock is moved."""
    return Options(
        namespace=options.namespace,
        session_ttl=options.session_ttl,
        resend_window=options.resend_window,
        max_size=options.max_size,
        retention=Retention(retention=LONGEST, result_ttl=LONGEST, dead_retention=LONGEST),
    )


def testing(app: Windlass, /, **options: Unpack[BlockOptions]) -> Block:
    """A block in which the test runs the jobs of an app: `with ... as t`, or `async with ... as t`.

    `now` is the first time of its clock. With `raises=False` an error of a task does not fail the test: its
    retry policy decides. `jitter` (1) is the part of the longest possible wait that a retry waits. With
    `schedules=False` schedules do not fire. `follow` is called with the new time when the clock moves.
    `lifespan` replaces the lifespan of the app.
    """
    return Block(app, inline=False, options=options)


def inline(app: Windlass, /, **options: Unpack[BlockOptions]) -> Block:
    """Like `testing`, but `enqueue` runs the job and returns when it has finished."""
    return Block(app, inline=True, options=options)


@contextlib.contextmanager
def async_bench(app: Windlass, /, **options: Unpack[BlockOptions]) -> Generator[AsyncBench]:
    """The block of an async test, for a fixture that is not async."""
    block = Block(app, inline=False, options=options)
    bench = block.enter_async()
    try:
        yield bench
    finally:
        block.__exit__(None, None, None)


testing.__test__ = False  # pyright: ignore[reportFunctionMemberAccess] - imported into test modules, it is no test
