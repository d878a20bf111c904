"""A bare id leads to its job, whichever namespace of the server it is in; and nothing is written for that."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from tests.broker.redis.cluster import cluster
from tests.broker.redis.scenario import job_id
from tests.broker.redis.servers import Server, redis_binary, running, valkey_binary

from windlass import Windlass
from windlass.broker.redis.acl import rules
from windlass.broker.redis.namespaces import REGISTRY
from windlass.core.ids import namespace_tag, tag_of
from windlass.errors import JobNotFound


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(redis_binary()) as one:
        yield one


def shop(url: str, namespace: str) -> Windlass:
    app = Windlass(url, namespace=namespace)
    app.task(name="send")(lambda: None)
    return app


def sent(app: Windlass) -> str:
    return app.tasks["send"].enqueue().id


def test_an_id_bears_the_tag_of_its_namespace() -> None:
    app = Windlass("memory://", namespace="hot")
    assert {tag_of(app.new_id()) for _ in range(10)} == {namespace_tag("hot")}


def test_a_job_of_another_namespace_is_named(server: Server) -> None:
    here, there, empty = (shop(server.url, name) for name in ("here", "there", "empty"))
    job = sent(there)
    sent(here)
    sent(empty)
    for app in (here, empty):
        handle = app.job(job)
        for asked in (handle.state, handle.result, handle.cancel):
            with pytest.raises(
                JobNotFound, match='belongs to namespace "there", and this app is of'
            ) as caught:
                asked()
            assert "set WINDLASS_NAMESPACE=there" in str(caught.value)
    assert there.job(job).state() == "ready", "nobody has touched it"
    for app in (here, there, empty):
        app.close()


def test_an_id_that_was_made_elsewhere_is_found_by_asking_each(server: Server) -> None:
    here, there = (shop(server.url, name) for name in ("foreign_here", "foreign_there"))
    sent(here)
    foreign = job_id(77)
    assert tag_of(foreign) != namespace_tag("foreign_there")
    there.new_id = lambda: foreign  # type: ignore[assignment]
    assert sent(there) == foreign
    with pytest.raises(JobNotFound, match='belongs to namespace "foreign_there"'):
        here.job(foreign).state()
    here.close()
    there.close()


def test_an_id_that_nobody_knows(server: Server) -> None:
    app = shop(server.url, "lonely")
    with pytest.raises(JobNotFound, match="is not known: it finished longer ago than jobs are kept"):
        app.job(job_id(5_555)).state()
    app.close()


@pytest.mark.parametrize("binary", [redis_binary, valkey_binary], ids=["redis", "valkey"])
def test_a_user_of_one_namespace_is_not_listed_and_sees_no_other(binary: Callable[[], Path]) -> None:
    with running(binary()) as one:
        with redis.Redis(unix_socket_path=str(one.socket)) as admin:
            admin.execute_command("ACL", "SETUSER", "jobs", ">pw", *rules("mine"))
            other, mine = shop(one.url, "other"), shop(f"unix://jobs@{one.socket}?password=pw", "mine")
            job = sent(other)
            sent(mine)
            assert admin.smembers(REGISTRY) == {b"other"}
            with pytest.raises(JobNotFound, match="is not known"):
                mine.job(job).state()
        other.close()
        mine.close()


def test_a_job_costs_no_entry_outside_of_its_namespace(server: Server) -> None:
    app = shop(server.url, "frugal")
    with redis.Redis(unix_socket_path=str(server.socket)) as admin:
        sent(app)
        before = admin.dbsize(), admin.memory_usage(REGISTRY)
        for _ in range(20):
            sent(app)
        assert (admin.dbsize(), admin.memory_usage(REGISTRY)) == before
    app.close()


def test_the_command_line_names_the_namespace(server: Server, tmp_path: Path) -> None:
    there = shop(server.url, "cli_there")
    job = sent(there)
    there.close()
    (tmp_path / "shop.py").write_text('from windlass import Windlass\napp = Windlass(namespace="cli_here")\n')
    done = subprocess.run(
        [sys.executable, "-m", "windlass", "jobs", "shop:app", "show", job],
        cwd=tmp_path,
        env={**os.environ, "WINDLASS_URL": server.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f'windlass: job {job} belongs to namespace "cli_there", and this app is of "cli_here"'
    )


@pytest.mark.slow
def test_on_a_cluster_namespaces_of_other_nodes_are_found() -> None:
    with cluster(redis_binary()) as nodes:
        apps = [shop(nodes.url, f"spread_{number}") for number in range(6)]
        jobs = [sent(app) for app in apps]
        for app, number in zip(apps, (1, 2, 3, 4, 5, 0), strict=True):
            with pytest.raises(JobNotFound, match=f'belongs to namespace "spread_{number}"'):
                asyncio.run(_state(app, jobs[number]))
            app.close()


async def _state(app: Windlass, job: str) -> str:
    return await app.job(job).astate()
