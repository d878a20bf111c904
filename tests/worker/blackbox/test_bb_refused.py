"""An operator takes a worker's rights away, or drops what it needs: it waits, says so, and charges nobody."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.conftest import QUICK
from tests.worker.blackbox.fleet import eventually, fleet_in

Act = Callable[[str], object]
"""Done to a namespace."""
Place = tuple[str, Act, Act]
"""The URL of a store, what takes something away, and what gives it back."""


@contextmanager
def _postgres(take: str, give: str) -> Iterator[Place]:
    server = Server(programs())
    try:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("CREATE ROLE humble LOGIN")
            admin.execute("GRANT CREATE ON DATABASE postgres TO humble")
            url = server.dsn.replace("windlass@", "humble@")
            yield (
                url,
                lambda name: admin.execute(take.replace("HERE", name)),
                lambda name: admin.execute(give.replace("HERE", name)),
            )
    finally:
        server.remove()


@contextmanager
def _redis(take: str) -> Iterator[Place]:
    with running(redis_binary()) as server:
        admin = redis.Redis(unix_socket_path=str(server.socket))
        admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "allkeys", "allchannels", "+@all")
        url = server.url.replace("unix://", "unix://u:p@")
        yield (
            url,
            lambda _: admin.execute_command("ACL", "SETUSER", "u", *take.split()),
            lambda _: admin.execute_command("ACL", "SETUSER", "u", "allkeys", "+@all"),
        )


HARM: dict[str, Callable[[], object]] = {
    "postgres, a right": lambda: _postgres(
        "REVOKE USAGE ON SCHEMA HERE FROM humble", "GRANT USAGE ON SCHEMA HERE TO humble"
    ),
    "postgres, everything": lambda: _postgres(
        "ALTER SCHEMA HERE RENAME TO elsewhere", "ALTER SCHEMA elsewhere RENAME TO HERE"
    ),
    "postgres, a table": lambda: _postgres(
        "ALTER TABLE HERE.session RENAME TO gone", "ALTER TABLE HERE.gone RENAME TO session"
    ),
    "redis, scripts": lambda: _redis("-evalsha -eval"),
    "redis, commands": lambda: _redis("-hset -hget -hmget"),
    "redis, keys": lambda: _redis("resetkeys"),
}


@pytest.fixture(params=HARM)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with HARM[request.param]() as made:  # type: ignore[attr-defined]
        yield made


@pytest.mark.slow
def test_a_worker_waits_says_so_and_charges_nobody(tmp_path: Path, place: Place) -> None:
    url, take, give = place
    with fleet_in(tmp_path, build, url=url, **QUICK) as fleet:
        worker = fleet.start("processes=2, concurrency=2")
        app = fleet.app
        eventually("both children work", lambda: fleet.sessions() == 2, hint=fleet.trouble)
        first = app.tasks["gated"].enqueue("gate")
        eventually("it runs", lambda: fleet.ledger.runs, hint=fleet.trouble)
        more = [app.tasks["gated"].enqueue("gate") for _ in range(20)]
        take(app.config.namespace)
        eventually(
            "heart and janitor say so",
            lambda: worker.said("the heartbeat: ") and worker.said("cannot be swept: "),
            hint=worker.log.read_text,
        )
        (fleet.folder / "gate").touch()
        eventually(
            "who fetches does, too",
            lambda: worker.said("does not answer (") or worker.said("cannot be read ("),
            hint=worker.log.read_text,
        )
        before = worker.children
        assert len(before) == 2, worker.log.read_text()
        give(app.config.namespace)
        fleet.finished()
        assert worker.children == before, "no child has ended"
        details = fleet.details([job.id for job in (first, *more)])
        assert {(detail.attempt, detail.crashes) for detail in details.values()} == {(1, 0)}
        lines = worker.log.read_text().splitlines()
        assert not worker.said("Traceback"), lines
        assert not worker.said("charged"), lines
        assert len(lines) < 60, lines
        assert worker.stop() == 0
