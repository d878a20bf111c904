"""One app serves threads, event loops and what comes after it was closed."""

import asyncio
import contextlib
import gc
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from windlass import Task, Windlass
from windlass.broker.observed import Observation
from windlass.broker.registry import open_broker
from windlass.client import connection
from windlass.client.portal import Portal, PortalClosed
from windlass.client.uninterrupted import Uninterrupted
from windlass.core.state import State
from windlass.errors import ContractError, StoreError, StoreUnavailable

THREADS = 8


def task_of(app: Windlass) -> Task[[int], None, None]:
    @app.task
    def send(number: int) -> None: ...

    return send


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each opening of a broker."""
    noted: list[str] = []

    async def opening(url: str, **more: Any) -> object:
        noted.append(url)
        return await open_broker(url, **more)

    monkeypatch.setattr(connection, "open_broker", opening)
    return noted


@pytest.fixture
def loop_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores as those whose client belongs to one event loop."""
    monkeypatch.setattr(connection, "serves_any_loop", lambda _url: False)


def at_once(work: Callable[[], Any]) -> list[Any]:
    together = threading.Barrier(THREADS)

    def one(_: int) -> Any:
        together.wait(10)
        return work()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def test_threads_race_for_the_first_use(app: Windlass, openings: list[str]) -> None:
    send = task_of(app)
    jobs = at_once(lambda: [send.enqueue(number) for number in range(20)])
    assert len({job.id for some in jobs for job in some}) == THREADS * 20
    assert all(job.created for some in jobs for job in some)
    assert len(openings) == 1


def test_loops_of_many_threads_race_for_the_first_use(app: Windlass, openings: list[str]) -> None:
    send = task_of(app)

    async def main() -> list[State]:
        jobs = await asyncio.gather(*(send.aenqueue(number) for number in range(20)))
        return [await job.astate() for job in jobs]

    assert at_once(lambda: asyncio.run(main())) == [[State.READY] * 20] * THREADS
    assert len(openings) == 1


def test_one_loop_after_another(app: Windlass) -> None:
    send = task_of(app)

    async def main() -> str:
        return (await send.aenqueue(1)).id

    ids = {asyncio.run(main()) for _ in range(3)}
    assert len(ids) == 3
    assert all(app.job(job_id).state() is State.READY for job_id in ids)
    assert len(app.connection._process.loops) == 1  # those that are closed are forgotten


@pytest.mark.filterwarnings("ignore::windlass.errors.BlockingCall")
def test_blocking_calls_inside_a_running_loop(app: Windlass) -> None:
    send = task_of(app)

    async def main() -> None:
        first = send.enqueue(1)
        second = await send.aenqueue(2)
        assert [job.state() for job in (first, second)] == [State.READY] * 2
        app.close()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_it_can_be_used_after_it_was_closed(app: Windlass, openings: list[str]) -> None:
    send = task_of(app)
    for _ in range(3):
        assert send.enqueue(1).state() is State.READY
        app.close()
        app.close()
    assert len(openings) == 3


def test_closed_in_one_loop_and_used_in_another(app: Windlass) -> None:
    send = task_of(app)

    async def main() -> None:
        assert await (await send.aenqueue(1)).astate() is State.READY
        await app.aclose()

    for _ in range(2):
        asyncio.run(main())
    assert send.enqueue(1).state() is State.READY


def test_close_of_an_app_that_was_never_used(app: Windlass) -> None:
    before = set(threading.enumerate())
    app.close()
    asyncio.run(app.aclose())
    assert set(threading.enumerate()) <= before


def test_threads_that_use_it_while_it_is_closed(app: Windlass) -> None:
    send = task_of(app)
    send.enqueue(0)
    going = threading.Event()

    def use() -> int:
        made = 0
        while not going.is_set() or not made:
            with contextlib.suppress(StoreError):  # closed under its hands; the next call opens anew
                made += send.enqueue(made).created
        return made

    with ThreadPoolExecutor(4) as pool:
        users = [pool.submit(use) for _ in range(4)]
        for _ in range(10):
            app.close()
        going.set()
        assert all(user.result(timeout=30) for user in users)


def test_a_store_that_could_not_be_opened_is_tried_anew(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = task_of(app)
    away = True

    async def opening(url: str, **more: Any) -> object:
        if away:
            raise StoreUnavailable("not yet")
        return await open_broker(url, **more)

    monkeypatch.setattr(connection, "open_broker", opening)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="not yet"):
            send.enqueue(1)
        with pytest.raises(StoreUnavailable, match="not yet"):
            asyncio.run(send.aenqueue(1))
    away = False
    assert send.enqueue(1).created
    assert asyncio.run(send.aenqueue(1)).created


def test_a_caller_that_leaves_does_not_take_the_opening_along(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = task_of(app)
    begun, gate = threading.Event(), threading.Event()

    async def opening(url: str, **more: Any) -> object:
        begun.set()
        await asyncio.to_thread(gate.wait, 10)
        return await open_broker(url, **more)

    monkeypatch.setattr(connection, "open_broker", opening)

    async def main() -> None:
        leaving = asyncio.create_task(app.aenqueue_many([send.call(1)]))
        staying = asyncio.create_task(send.aenqueue(2))
        await asyncio.to_thread(begun.wait, 10)
        leaving.cancel()
        await asyncio.sleep(0)
        gate.set()
        assert (await staying).created
        assert leaving.cancelled()

    asyncio.run(asyncio.wait_for(main(), 10))


@pytest.mark.usefixtures("loop_bound")
def test_a_store_of_one_loop_is_opened_for_each(
    new_app: Callable[..., Windlass], openings: list[str]
) -> None:
    app = new_app()
    send = task_of(app)

    async def main() -> None:
        jobs = await asyncio.gather(*(send.aenqueue(number) for number in range(10)))
        assert await jobs[0].astate() is State.READY
        await app.aclose()

    asyncio.run(main())
    asyncio.run(main())
    assert send.enqueue(1).state() is State.READY  # through the portal, on its loop
    assert len(openings) == 3


@pytest.mark.usefixtures("loop_bound")
def test_a_store_of_one_loop_that_could_not_be_opened_is_tried_anew(
    new_app: Callable[..., Windlass], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app()
    send = task_of(app)
    answers = [StoreUnavailable("not yet")]

    async def opening(url: str, **more: Any) -> object:
        if answers:
            raise answers.pop()
        return await open_broker(url, **more)

    monkeypatch.setattr(connection, "open_broker", opening)

    async def main() -> None:
        with pytest.raises(StoreUnavailable, match="not yet"):
            await send.aenqueue(1)
        assert (await send.aenqueue(1)).created
        await app.aclose()

    asyncio.run(main())


# --- observers ----------------------------------------------------------------------------------------------


def test_observers_see_every_verb(app: Windlass) -> None:
    send, early, late = task_of(app), list[str](), list[str]()
    app.observe(lambda seen: early.append(seen.verb))
    send.enqueue(1)
    app.observe(lambda seen: late.append(seen.verb))
    send.enqueue(2).state()
    asyncio.run(send.aenqueue(3))
    assert early == ["declare", "enqueue", "enqueue", "get", "enqueue"]
    assert late == ["enqueue", "get", "enqueue"]


def test_an_observer_is_a_function(app: Windlass) -> None:
    with pytest.raises(ValueError, match="an observer is a function of an Observation, not 'log'"):
        app.observe("log")  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("ignore::windlass.errors.BlockingCall")
def test_a_blocking_call_of_an_observer_is_refused_instead_of_waiting_for_itself(app: Windlass) -> None:
    send = task_of(app)
    job = send.enqueue(1)
    caught: list[BaseException] = []

    @app.observe
    def _(seen: Observation) -> None:
        if seen.verb == "get":
            for ask in (job.cancel, app.close):
                try:
                    ask()
                except ContractError as error:
                    caught.append(error)

    job.state()
    assert [str(error).partition(";")[0] for error in caught] == [
        "a blocking call would wait for itself here"
    ] * 2


# --- the portal ---------------------------------------------------------------------------------------------


class InterruptsMain(contextlib.AbstractContextManager[None]):
    """A lock that interrupts the main thread when another thread asks for it, and is given when told."""

    def __init__(self) -> None:
        self.asked_by: threading.Thread | None = None
        self.given = threading.Event()

    def __enter__(self) -> None:
        self.asked_by = threading.current_thread()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        assert self.given.wait(10)

    def __exit__(self, *_: object) -> None: ...


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_call_does_not_open_an_app_that_was_closed_meanwhile(
    app: Windlass, openings: list[str]
) -> None:
    send, lock = task_of(app), InterruptsMain()
    handler = signal.signal(signal.SIGUSR1, _interrupt)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app.connection._process, "lock", lock)
            with pytest.raises(KeyboardInterrupt):
                send.enqueue(1)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    app.close()
    lock.given.set()
    assert lock.asked_by is not None
    for _ in range(100):  # its thread ends when nothing refers to it, and an error refers to itself
        gc.collect()
        lock.asked_by.join(0.1)
        if not lock.asked_by.is_alive():
            break
    assert not lock.asked_by.is_alive()
    assert openings == []


async def nothing() -> None:
    pass


def test_an_interrupted_caller_takes_its_work_along() -> None:
    portal, begun, ended = Portal(Uninterrupted()), threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    future = portal.submit(work)
    assert begun.wait(10)
    future.cancel()
    assert ended.wait(10)
    portal.close(nothing)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_whatever_work_raises_reaches_its_caller_and_the_portal_goes_on(kind: type[BaseException]) -> None:
    portal = Portal(Uninterrupted())

    async def work() -> None:
        raise kind

    with pytest.raises(StoreError if kind is asyncio.CancelledError else kind):
        portal.run(work)
    portal.run(nothing)
    portal.close(nothing)


def test_a_portal_that_is_closed_begins_nothing_and_lets_everybody_go() -> None:
    portal, begun = Portal(Uninterrupted()), threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(portal.run, work)
        assert begun.wait(10)
        portal.close(nothing)
        with pytest.raises(StoreError, match="the app was closed"):
            waiting.result(timeout=10)
    with pytest.raises(PortalClosed):
        portal.submit(work)


def test_the_thread_ends_with_the_app() -> None:
    app = Windlass("memory://")
    task_of(app).enqueue(1)
    thread = app.connection._process.portal._thread
    assert thread is not None
    del app
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
