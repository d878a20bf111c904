"""A child of a fork starts anew: other ids, its own connections, no lock that somebody held."""

import asyncio
import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.core.state import State

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_child(work: Callable[[], str]) -> str:
    """What it returns in a child, which has half a minute."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a child that hangs is killed
        code = 1
        try:
            os.write(writing, work().encode())
            code = 0
        except BaseException:  # noqa: BLE001 - told to the parent
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, answer
    return answer


@pytest.fixture
def send(app: Windlass) -> Callable[[], str]:
    @app.task
    def send(number: int) -> None: ...

    return lambda: send.enqueue(1).id


def test_both_enqueue_after_a_fork(app: Windlass, send: Callable[[], str], url: str) -> None:
    async def asynchronously() -> str:
        job = await app.aenqueue_many([app.tasks["send"].call(1)])
        return job[0].id

    def child() -> str:
        ids = [send() for _ in range(50)]
        ids.append(asyncio.run(asynchronously()))
        assert app.job(ids[0]).state() is State.READY
        app.close()
        ids.append(send())
        return " ".join(ids)

    mine = {send() for _ in range(50)}
    theirs = in_child(child).split()
    mine |= {send() for _ in range(50)}
    assert (len(mine), len(theirs), mine & set(theirs)) == (100, 52, set())
    assert app.job(min(mine)).state() is State.READY
    if not url.startswith("memory"):
        assert {app.job(job_id).state() for job_id in theirs} == {State.READY}


def test_a_fork_while_every_lock_is_held(app: Windlass, send: Callable[[], str]) -> None:
    send()
    process = app.connection._process
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with process.lock, process.portal._lock, app.new_id._lock:
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    try:
        assert in_child(send)
    finally:
        done.set()
        holder.join()


def test_a_fork_while_other_threads_enqueue(app: Windlass, send: Callable[[], str]) -> None:
    going = threading.Event()
    made: set[str] = set()

    def use() -> None:
        while not going.is_set():
            made.add(send())

    users = [threading.Thread(target=use) for _ in range(2)]
    for user in users:
        user.start()
    try:
        theirs = {in_child(send) for _ in range(3)}
    finally:
        going.set()
        for user in users:
            user.join()
    assert len(theirs) == 3
    assert not theirs & made


def test_an_app_that_is_gone_is_not_renewed(tmp_path: Path) -> None:
    app = Windlass("memory://")
    app.task(name="send")(print)
    del app
    assert in_child(lambda: "ok") == "ok"
