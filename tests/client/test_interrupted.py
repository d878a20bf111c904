"""A signal handler that raises, or that calls, in the middle of a blocking call: the call was accepted or
not, never half, and the next one works.
"""

import asyncio
import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running

from windlass import Windlass
from windlass.client import task
from windlass.client.uninterrupted import Uninterrupted
from windlass.core.state import State
from windlass.errors import WindlassError

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A handler may raise inside a destructor, too, where Python only says so."""


class Interrupted(Exception):
    """What a signal handler raises."""


@pytest.fixture(autouse=True)
def _lock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Steps` raises also between a lock's `with` and its body, where Python runs no signal handler. A test
    that leaves a lock of the whole process locked must not stop the threads of the tests behind it.
    """
    monkeypatch.setattr(task, "_making", task._Making())


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running(redis_binary()) as server:
        yield server.url


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    server = Server(programs())
    try:
        yield server.dsn
    finally:
        server.remove()


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'windlass.db'}"
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def app(url: str) -> Iterator[Windlass]:
    made = Windlass(url, namespace=f"n{random.randrange(1 << 40):x}")
    made.task(name="send")(_send)
    yield made
    made.close()


def _send(number: int) -> None: ...


class Steps:
    """Calls a function before one instruction, counted from the beginning of a block, of this thread.

    A signal handler runs between two instructions, wherever it pleases.
    """

    def __init__(self, at: int, handler: Callable[[], None]) -> None:
        self.at = at
        self.handler = handler
        self.seen = 0

    @property
    def is_over(self) -> bool:
        """Whether the block ended before the instruction was reached."""
        return self.seen < self.at

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes = True
        if event in ("opcode", "call"):
            self.seen += 1
            if self.seen == self.at:
                sys.settrace(None)
                self.handler()
        return self.trace


def _raise() -> None:
    raise Interrupted


def each_step(block: Callable[[], object], handler: Callable[[], None], every: int = 1) -> Iterator[bool]:
    """Do a block again and again, with the handler one instruction later each time; whether it raised."""
    at = 1
    while True:
        raised = False
        steps = Steps(at, handler)
        sys.settrace(steps.trace)
        try:
            block()
        except Interrupted:
            raised = True
        finally:
            sys.settrace(None)
        if steps.is_over:
            return
        yield raised
        at += every


def test_a_handler_that_raises_at_any_instruction_of_enqueue(app: Windlass) -> None:
    send = app.tasks["send"]
    ids = [send.enqueue(0).id]
    for _ in each_step(lambda: ids.append(send.enqueue(1).id), _raise):
        ids.append(send.enqueue(2).id)  # noqa: PERF401 - one after each interruption
    assert len(ids) > 100
    assert {app.job(job).state() for job in ids[-20:]} == {State.READY}
    assert _elsewhere(app) == State.READY


def test_a_handler_that_raises_while_the_app_is_opened(app: Windlass) -> None:
    send = app.tasks["send"]

    def open_and_send() -> None:
        app.close()
        send.enqueue(1)

    count = 0
    for _ in each_step(open_and_send, _raise, every=7):
        assert app.job(send.enqueue(2).id).state() is State.READY
        count += 1
    assert count > 20


def test_a_handler_that_forks_leaves_no_child_waiting() -> None:
    """The child has no helper thread; it is told so instead of waiting for ever."""
    calls, parent, go_on = Uninterrupted(), os.getpid(), threading.Event()
    told, tell = os.pipe()

    def fork(*_: object) -> None:
        if os.fork() != 0:
            go_on.set()

    before = signal.signal(signal.SIGUSR1, fork)
    try:
        threading.Timer(0.05, os.kill, (parent, signal.SIGUSR1)).start()
        answer = calls.call(go_on.wait, 30)
    except BaseException as error:  # noqa: BLE001 - in the child, which must not go on with the tests
        os.write(tell, type(error).__name__.encode())
        os._exit(0)
    finally:
        if os.getpid() == parent:
            signal.signal(signal.SIGUSR1, before)
    if os.getpid() != parent:
        os._exit(1)
    os.close(tell)
    with os.fdopen(told) as words:
        assert (answer, words.read()) == (True, "StoreError")
    os.wait()


def test_a_close_that_was_interrupted_does_not_close_what_is_opened_after_it(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the helper thread begins it late."""
    late: list[Callable[[], object]] = []

    def begun_later(_calls: Uninterrupted, work: Callable[[], object]) -> None:
        late.append(work)
        raise Interrupted

    first = app.run(app.broker())
    with monkeypatch.context() as patched:
        patched.setattr(Uninterrupted, "call", begun_later)
        with pytest.raises(Interrupted):
            app.close()
    second = app.run(app.broker())
    assert second is not first
    for work in late:
        work()
    assert app.run(app.broker()) is second
    assert app.job(app.tasks["send"].enqueue(1).id).state() is State.READY


def test_a_close_that_was_interrupted_before_it_began_is_made_up_for(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    app.tasks["send"].enqueue(1)
    opened = [each for each in set(threading.enumerate()) - before if each.name == "windlass-portal"]
    assert opened

    def never(_calls: Uninterrupted, _work: Callable[[], object]) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(Uninterrupted, "call", never)
        with pytest.raises(Interrupted):
            app.close()
    app.close()
    assert not any(thread.is_alive() for thread in opened)


def test_a_handler_that_raises_while_a_handle_reads(app: Windlass) -> None:
    send = app.tasks["send"]
    job = send.enqueue(1)
    count = 0
    for _ in each_step(job.state, _raise, every=3):
        assert job.state() is State.READY
        count += 1
    assert count > 20
    for _ in each_step(job.cancel, _raise, every=11):
        job.cancel()
    assert job.state() is State.CANCELLED


def test_a_handler_that_raises_in_a_bulk_call_leaves_each_group_whole(app: Windlass) -> None:
    send = app.tasks["send"]
    groups: list[list[str]] = []

    def send_many() -> None:
        calls = [send.call(number) for number in range(3)]
        groups.append([call.job.id for call in calls])
        app.enqueue_many(calls)

    for _ in each_step(send_many, _raise, every=13):
        send.enqueue(2)
    assert len(groups) > 20
    for group in groups:
        assert len({_state(app, job) for job in group}) == 1


def test_a_handler_that_enqueues_at_any_instruction_of_enqueue(app: Windlass) -> None:
    send = app.tasks["send"]
    inner: list[str] = []
    outer = [send.enqueue(0).id]
    for raised in each_step(
        lambda: outer.append(send.enqueue(1).id), lambda: inner.append(send.enqueue(2).id)
    ):
        assert not raised
    assert len(inner) == len(outer) - 2 > 100
    assert len({*inner, *outer}) == len(inner) + len(outer)
    assert {app.job(job).state() for job in (*inner[-10:], *outer[-10:])} == {State.READY}


def test_a_handler_that_enqueues_while_the_app_is_opened(app: Windlass) -> None:
    send = app.tasks["send"]
    inner: list[str] = []

    def open_and_send() -> None:
        app.close()
        send.enqueue(1)

    for _ in each_step(open_and_send, lambda: inner.append(send.enqueue(2).id), every=7):
        assert app.job(inner[-1]).state() is State.READY
    assert len(inner) > 20


@pytest.mark.parametrize("count", [2, 40])
def test_a_handler_that_sends_many_in_the_middle_of_sending_many(app: Windlass, count: int) -> None:
    send = app.tasks["send"]
    sent: list[str] = []

    def send_many() -> None:
        jobs = app.enqueue_many(send.call(number) for number in range(count))
        sent.extend(job.id for job in (jobs[0], jobs[-1]))

    for raised in each_step(send_many, send_many, every=5 * count + 2):
        assert not raised
    assert len(sent) == len(set(sent)) > 20
    assert {app.job(job).state() for job in sent[-20:]} == {State.READY}
    assert _elsewhere(app) == State.READY


@pytest.fixture
def large(url: str, tmp_path: Path) -> Iterator[Windlass]:
    """An app whose arguments are large: their put runs in the thread that is interrupted."""
    values = f"file://{tmp_path / 'values'}"
    made = Windlass(url, namespace=f"n{random.randrange(1 << 40):x}", values=values, values_over=10)
    made.task(name="send")(_send_text)
    yield made
    made.close()


def _send_text(text: str) -> None: ...


LARGE = "x" * 100


def test_a_handler_that_raises_while_a_large_value_is_put(large: Windlass) -> None:
    send = large.tasks["send"]
    ids = [send.enqueue(LARGE).id]
    for _ in each_step(lambda: send.enqueue(LARGE), _raise, every=53):
        ids.append(send.enqueue(LARGE).id)  # noqa: PERF401 - one after each interruption
    assert len(ids) > 20
    assert {large.job(job).state() for job in ids[-20:]} == {State.READY}


def test_a_handler_that_enqueues_while_a_large_value_is_put(large: Windlass) -> None:
    send = large.tasks["send"]
    sent = [send.enqueue(LARGE).id]
    for raised in each_step(
        lambda: sent.append(send.enqueue(LARGE).id), lambda: sent.append(send.enqueue(LARGE).id), every=53
    ):
        assert not raised
    assert len(sent) == len(set(sent)) > 20
    assert {large.job(job).state() for job in sent[-20:]} == {State.READY}


def test_a_handler_that_reads_and_cancels_in_the_middle_of_enqueue(app: Windlass) -> None:
    send = app.tasks["send"]
    cancelled: list[str] = []

    def cancel() -> None:
        job = send.enqueue(3)
        job.cancel()
        cancelled.append(job.id)

    for _ in each_step(lambda: send.enqueue(1), cancel, every=5):
        assert app.job(cancelled[-1]).state() is State.CANCELLED
    assert cancelled


@pytest.mark.filterwarnings("ignore::windlass.errors.BlockingCall")
def test_a_handler_that_enqueues_in_the_middle_of_async_code(app: Windlass) -> None:
    send = app.tasks["send"]
    inner: list[str] = []
    with asyncio.Runner() as runner:
        runner.run(send.aenqueue(0))
        for _ in each_step(
            lambda: runner.run(send.aenqueue(1)), lambda: inner.append(send.enqueue(2).id), every=7
        ):
            assert app.job(inner[-1]).state() is State.READY
        runner.run(app.aclose())
    assert len(inner) > 20


def test_openings_that_are_interrupted_leave_no_threads(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _interrupt_openings(url, monkeypatch, is_closed=True)


def test_nor_do_those_of_apps_that_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _interrupt_openings(f"sqlite:///{tmp_path / 'windlass.db'}", monkeypatch, is_closed=False)


def _interrupt_openings(url: str, monkeypatch: pytest.MonkeyPatch, *, is_closed: bool) -> list[str]:
    """What was left open, by the words of those that complained when they were destroyed."""
    left_open: list[str] = []

    def ignored(said: "sys.UnraisableHookArgs") -> None:
        # pytest's own keeps the error until the test ends: with it the frames of its thread, and the threads.
        if issubclass(said.exc_type, ResourceWarning):
            left_open.append(str(said.exc_value))

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    def open_and_send(within: float) -> bool:
        """Whether it was interrupted."""
        app = Windlass(url, namespace=namespace)
        send = app.task(name="send")(_send)
        try:
            signal.setitimer(signal.ITIMER_REAL, within)
            send.enqueue(1)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            return True
        finally:
            if is_closed:
                app.close()
        return False

    draw, namespace = random.Random(1), f"n{random.randrange(1 << 40):x}"
    open_and_send(60)  # what is imported once
    before = set(threading.enumerate())
    gc.collect()
    gc.freeze()  # it takes long to look through all that the tests have imported
    monkeypatch.setattr(sys, "unraisablehook", ignored)
    rung, handler = 0, signal.signal(signal.SIGALRM, ring)
    try:
        whole, openings = 0.05, 0
        while openings < 60 or (rung <= 10 and openings < 600):
            start = time.monotonic()
            interrupted = open_and_send(draw.uniform(0.000_1, whole))
            if not interrupted:  # how long one lasts changes with what else the machine does
                whole = time.monotonic() - start
            rung, openings = rung + interrupted, openings + 1
            gc.collect()  # what is dropped without being closed is a cycle
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert rung > 10
    _await_the_end(set(threading.enumerate()) - before)
    gc.unfreeze()
    return left_open


def _await_the_end(threads: set[threading.Thread]) -> None:
    for thread in threads:
        for _ in range(100):  # an opening may still go on, and is dropped when it ends
            gc.collect()
            with contextlib.suppress(RuntimeError):  # it is only being started
                thread.join(0.1)
            if not thread.is_alive():
                break
        assert not thread.is_alive(), thread.name


@pytest.mark.parametrize("seed", [1])
def test_random_alarms_that_raise(app: Windlass, seed: int) -> None:
    _alarms(app, random.Random(seed), 300)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_thousands_of_random_alarms_that_raise(app: Windlass, seed: int) -> None:
    _alarms(app, random.Random(seed), 5_000)


def _alarms(app: Windlass, draw: random.Random, count: int) -> None:
    """Real signals at random moments; between them threads that are never interrupted go on."""
    send = app.tasks["send"]
    accepted: list[str] = []
    beside: list[str] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            beside.append(send.enqueue(7).id)

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    send.enqueue(0)
    before = signal.signal(signal.SIGALRM, ring)
    thread = threading.Thread(target=go_on)
    thread.start()
    rung = 0
    try:
        for _ in range(count):
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.000_02, 0.001_5))
                for _ in range(10):  # not for ever: what is raised in a destructor does not come here
                    accepted.append(send.enqueue(1).id)  # noqa: PERF401 - it is interrupted
            except Interrupted:
                rung += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            accepted.append(send.enqueue(2).id)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        over.set()
        thread.join()
    assert rung > count / 2
    assert beside
    for job in (*draw.sample(accepted, 50), *accepted[-5:], *beside[-5:]):
        assert app.job(job).state() is State.READY
    assert _elsewhere(app) == State.READY


def _state(app: Windlass, job: str) -> State | None:
    try:
        return app.job(job).state()
    except WindlassError:
        return None


def _elsewhere(app: Windlass) -> State:
    """What a job becomes that another process enqueues: no lock or transaction is left behind in this one."""
    program = f"""
import windlass
app = windlass.Windlass({app.config.url!r}, namespace={app.config.namespace!r})
@app.task(name="send")
def send(number: int) -> None: ...
print(send.enqueue(9).state())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return State(done.stdout.strip())
