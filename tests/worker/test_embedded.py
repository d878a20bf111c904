"""A worker inside an application: begun and not, lost and found, left in the wrong moment."""

import asyncio
import threading
from typing import Any

import pytest

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.broker.memory import MemoryBroker
from windlass.core.outcome import Cause, CauseKind
from windlass.errors import InvalidOption, StoreUnavailable
from windlass.worker.embedded import EmbeddedWorker
from windlass.worker.holds import hold_key, process_key
from windlass.worker.options import WorkerOptions


class Store:
    """A store that can be away when it is opened, or when it is told of tasks."""

    def __init__(self) -> None:
        self.broker: Any = MemoryBroker()
        self.refusals: dict[str, int] = {}
        for verb in ("declare", "beat"):
            self._wrap(verb)

    def _wrap(self, verb: str) -> None:
        real = getattr(self.broker, verb)

        async def called(*args: Any, **kwargs: Any) -> Any:
            self._refuse(verb)
            return await real(*args, **kwargs)

        setattr(self.broker, verb, called)

    def _refuse(self, verb: str) -> None:
        if self.refusals.get(verb, 0):
            self.refusals[verb] -= 1
            raise StoreUnavailable("nobody there")

    async def open(self) -> Broker:
        self._refuse("open")
        return self.broker

    async def close(self) -> None: ...

    def worker(self, app: Windlass, **options: Any) -> EmbeddedWorker:
        return EmbeddedWorker(app, WorkerOptions(**options), open_broker=self.open, close_broker=self.close)


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://", beat=0.05, session_ttl=5, grace=0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queues": ["defualt"]}, 'queue "defualt" is not declared; did you mean "default"?'),
        ({"groups": ["2:default", "1:nowhere"]}, 'queue "nowhere" is not declared; declared queues: default'),
    ],
)
def test_a_queue_that_is_not_declared_is_refused(
    app: Windlass, options: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with pytest.raises(InvalidOption) as caught:
            async with app.worker(**options):
                pass
        assert str(caught.value) == words
        async with app.worker(queues=["default=3"]):
            pass
        await app.aclose()

    asyncio.run(main())
    assert caplog.records == []


@pytest.mark.parametrize("verb", ["declare", "open", "beat"])
def test_a_lost_session_is_followed_by_another_when_the_store_is_back(app: Windlass, verb: str) -> None:
    done = asyncio.Event()

    @app.task
    async def work() -> None:
        done.set()

    async def main() -> None:
        store = Store()
        async with store.worker(app) as worker, asyncio.timeout(20):
            first = worker.session
            store.refusals[verb] = 2
            await store.broker.end_session(first, Cause(CauseKind.LOST))
            await store.broker.enqueue([[work.call().job]])
            await done.wait()
            assert worker.session != first

    asyncio.run(main())


def test_an_application_that_does_not_wait_for_the_start_leaves_nothing_behind(app: Windlass) -> None:
    async def main() -> None:
        store = Store()
        store.refusals["beat"] = 10**9
        worker = store.worker(app)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await worker.__aenter__()
        await asyncio.sleep(0)  # a turn, for what was cancelled
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_what_cannot_begin_says_why(app: Windlass) -> None:
    async def main() -> None:
        store = Store()
        store.refusals["open"] = 1
        with pytest.raises(StoreUnavailable):
            async with store.worker(app):
                pass

    asyncio.run(main())


def test_it_is_left_with_the_error_of_the_body(app: Windlass) -> None:
    async def main() -> None:
        store = Store()
        worker = store.worker(app)
        with pytest.raises(KeyError):
            async with worker:
                raise KeyError
        await asyncio.sleep(0)  # a turn, for what was cancelled
        assert asyncio.all_tasks() == {asyncio.current_task()}
        (view,) = await store.broker.sessions()
        assert view.cause is not None
        assert view.cause.kind is CauseKind.STOP

    asyncio.run(main())


def test_it_can_be_left_while_the_store_is_away(app: Windlass) -> None:
    """Lost, and waiting for the store to begin anew: the application must be able to end."""

    async def main() -> None:
        store = Store()
        async with store.worker(app) as worker:
            first = worker.session
            store.refusals["open"] = 10**9
            await store.broker.end_session(first, Cause(CauseKind.LOST))
            while worker.session == first:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        ended.set()

    # On a thread: nothing else could end it if it did not.
    ended = threading.Event()
    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
    assert ended.wait(15)


def test_held_jobs_of_tasks_with_a_process_of_their_own_are_left_to_others(app: Windlass) -> None:
    """It has no such processes: it would hold them again at once, every few seconds."""

    @app.task(run="process")
    def render() -> None: ...

    @app.task
    def send() -> None: ...

    async def main() -> None:
        store, freed, done = Store(), list[str](), asyncio.Event()
        loop, unhold = asyncio.get_running_loop(), store.broker.unhold

        async def unheld(key: str, limit: int) -> Any:
            freed.append(key)
            if key == hold_key("send"):
                loop.call_soon_threadsafe(done.set)
            return await unhold(key, limit)

        store.broker.unhold = unheld
        async with store.worker(app):
            await done.wait()
        assert not {hold_key("render"), process_key("render")} & set(freed)

    asyncio.run(main())
