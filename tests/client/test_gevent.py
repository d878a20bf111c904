"""Greenlets in the place of threads."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.broker.postgres.namespaces import namespaces
from tests.broker.redis.fixtures import redis_server

from windlass import Windlass
from windlass.errors import StoreError

__all__ = ["namespaces", "redis_server"]

SCRIPT = """
from gevent import monkey
monkey.patch_all()
import gevent, os, sys
from windlass import Windlass
app = Windlass(sys.argv[1], namespace="greenlets")

@app.task
def send(number: int) -> None: ...

def used(number: int) -> str:
    return send.enqueue(number).state()

print({each.get() for each in gevent.joinall([gevent.spawn(used, number) for number in range(20)])})
child = os.fork()
if child == 0:
    print(used(1), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(used(1))
app.close()
"""


@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")
@pytest.mark.parametrize("store", ["sqlite", "redis", "postgres"])
def test_greenlets_enqueue(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if store == "redis":
        url = request.getfixturevalue("redis_server").url
    elif store == "postgres":
        url = request.getfixturevalue("namespaces").server.dsn
    else:
        url = f"sqlite:///{tmp_path / 'windlass.db'}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["{<State.READY:", "'ready'>}", "ready", "ready"], done.stderr


def test_half_of_gevent_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sockets of gevent's and real threads, no event loop of ours would ever be told of an answer."""
    half = SimpleNamespace(is_module_patched=lambda module: module != "threading")
    monkeypatch.setitem(sys.modules, "gevent.monkey", half)  # type: ignore[arg-type]
    app = Windlass(url)
    with pytest.raises(StoreError, match="thread=False"):
        app.task(name="send")(print).enqueue()
    app.close()
