"""Apps that are dropped without a close, or first used when Python is ending; what a first use imports."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.broker.postgres.namespaces import namespaces
from tests.broker.redis.fixtures import redis_server

__all__ = ["namespaces", "redis_server"]


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return request.getfixturevalue("redis_server").url
    if request.param == "postgres":
        return request.getfixturevalue("namespaces").server.dsn
    return f"sqlite:///{tmp_path / 'windlass.db'}"


def ran(script: str, url: str) -> str:
    """What a program prints; it says nothing else, and ends well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", textwrap.dedent(script), url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_program_that_waits_for_a_result_and_never_closes_ends_in_silence(url: str) -> None:
    script = """
    import sys
    from windlass import Windlass
    from windlass.errors import ResultTimeout

    app = Windlass(sys.argv[1], namespace="silence")

    @app.task
    def send(number: int) -> None: ...

    try:
        send.enqueue(1).result(timeout=0.1)
    except ResultTimeout:
        print("waited")
    """
    assert ran(script, url) == "waited\n"


def test_apps_that_are_dropped_leave_nothing_open(url: str) -> None:
    script = """
    import asyncio, gc, os, sys, threading
    from windlass import Windlass

    def used():
        app = Windlass(sys.argv[1], namespace="dropped")

        @app.task
        def send(number: int) -> None: ...

        async def on_loop():
            await (await send.aenqueue(1)).astate()

        send.enqueue(1).state()
        asyncio.run(on_loop())

    def left():
        for thread in threading.enumerate():
            gc.collect()  # each time: what the thread before had is dropped with it
            if thread is not threading.current_thread():
                thread.join(20)
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(10):
        used()
    print(left() == before, before)
    """
    assert ran(script, url).startswith("True")


def test_a_first_use_imports_nothing(url: str) -> None:
    """The child of a fork in the middle of an import would wait for that module without end."""
    script = """
    import asyncio, sys
    from windlass import Windlass
    app = Windlass(sys.argv[1], namespace="imports")

    @app.task
    def send(number: int) -> None: ...

    async def on_loop():
        await (await send.aenqueue(1)).astate()

    known = set(sys.modules)
    send.enqueue(1).state()
    asyncio.run(on_loop())
    print(sorted(set(sys.modules) - known))
    app.close()
    """
    assert ran(script, url) == "[]\n"


def test_a_first_use_when_python_is_ending(url: str) -> None:
    """It works, or is refused at once: Python 3.12 starts no threads then."""
    script = """
    import atexit, sys
    from windlass import Windlass
    from windlass.errors import StoreError
    app = Windlass(sys.argv[1], namespace="ending")

    @app.task
    def send(number: int) -> None: ...

    @atexit.register
    def last() -> None:
        try:
            print(send.enqueue(1).state())
        except StoreError as error:
            print(error)
        app.close()
    """
    said = ran(script, url)
    assert said == "ready\n" or (sys.version_info[:2] == (3, 12) and "atexit" in said)
