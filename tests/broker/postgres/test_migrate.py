"""`windlass migrate`: says what it would do, does it, goes on after a kill, and refuses in one line."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.worker.blackbox.fleet import eventually

from windlass import Windlass, current
from windlass.broker.postgres import install, migrating
from windlass.broker.postgres.install import migrations

__all__ = ["namespaces"]
_TASKS = "from windlass import Windlass\napp = Windlass()\n"
_STOP_AT_JOB = """
CREATE OR REPLACE FUNCTION public.stop_at_job() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
    IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity = 'halfway.job') THEN
        PERFORM pg_advisory_xact_lock(4711);
    END IF;
END $$;
CREATE EVENT TRIGGER stop_at_job ON ddl_command_end EXECUTE FUNCTION public.stop_at_job();
"""


class Desk:
    """A folder with an app, and the command in it."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
        return subprocess.Popen(
            [sys.executable, "-m", "windlass", "migrate", "tasks:app", *arguments],
            cwd=self.folder,
            env={**clean, "WINDLASS_URL": self.dsn, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.fixture
def desk(tmp_path: Path, namespaces: Namespaces) -> Desk:
    (tmp_path / "tasks.py").write_text(_TASKS)
    return Desk(tmp_path, namespaces.server.dsn)


@pytest.fixture
def owner(namespaces: Namespaces) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(namespaces.server.dsn, autocommit=True) as connection:
        yield connection


def test_it_says_what_it_would_do_and_does_it(desk: Desk, owner: psycopg.Connection[Any]) -> None:
    latest = len(migrations())
    code, out, _ = desk.run("--status", "--namespace", "said")
    assert (code, out) == (1, f'namespace "said": layout 0 of {latest}, functions missing\n')
    code, script, _ = desk.run("--sql", "--namespace", "said")
    assert code == 0
    assert script.count("COMMIT;") == latest + 2
    assert owner.execute("SELECT to_regnamespace('said')").fetchone() == (None,), "nothing was run"
    code, out, _ = desk.run("--namespace", "said")
    now = f"layout {latest} of {latest}, functions current (was: layout 0, functions missing)"
    assert (code, out) == (0, f'namespace "said": {now}\n')
    code, out, _ = desk.run("--status", "--json", "--namespace", "said")
    assert (code, json.loads(out)["current"]) == (0, True)
    code, out, _ = desk.run("--sql", "--namespace", "said")
    assert (code, out) == (0, '-- namespace "said" is up to date: there is nothing to run\n')


def test_what_it_prints_can_be_run_by_hand(desk: Desk, owner: psycopg.Connection[Any]) -> None:
    _, script, _ = desk.run("--sql", "--namespace", "by_hand")
    owner.execute(script.encode())
    assert desk.run("--status", "--namespace", "by_hand")[0] == 0


def test_killed_half_way_it_goes_on(desk: Desk, owner: psycopg.Connection[Any]) -> None:
    """Stopped by the server in the middle of the first migration, and killed there."""
    owner.execute("SELECT pg_advisory_lock(4711)")
    owner.execute(_STOP_AT_JOB)
    try:
        process = desk.start("--namespace", "halfway")
        waits = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"
        eventually("the migration stands still", lambda: owner.execute(waits).fetchone())
        process.kill()
        process.communicate()
    finally:
        owner.execute("DROP EVENT TRIGGER stop_at_job")
        owner.execute("SELECT pg_advisory_unlock(4711)")
    code, out, _ = desk.run("--status", "--namespace", "halfway")
    assert (code, "layout 0 of" in out) == (1, True), "a migration is made whole or not at all"
    assert desk.run("--namespace", "halfway")[0] == 0
    assert desk.run("--status", "--namespace", "halfway")[0] == 0


def test_it_waits_for_steps_that_have_begun(desk: Desk, owner: psycopg.Connection[Any]) -> None:
    """They go on with the functions of before, and hold tables that a migration wants for itself."""
    assert desk.run("--namespace", "begun")[0] == 0
    owner.execute("UPDATE begun.layout SET functions = 'older'")
    with owner.transaction():
        owner.execute("SELECT pg_advisory_xact_lock_shared(1464422980, 'begun.job'::regclass::oid::integer)")
        owner.execute("SELECT FROM begun.queue")
        process = desk.start("--namespace", "begun")
        waits = "SELECT pid FROM pg_locks WHERE classid = 1464422980 AND NOT granted"
        eventually("it waits", lambda: owner.execute(waits).fetchone())
        owner.execute("SELECT FROM begun.ready")
    assert process.communicate(timeout=60)[1] == ""
    assert desk.run("--status", "--namespace", "begun")[0] == 0


def test_an_older_namespace_gets_only_what_is_missing(desk: Desk, owner: psycopg.Connection[Any]) -> None:
    latest = len(migrations())
    assert desk.run("--namespace", "aged")[0] == 0
    owner.execute("UPDATE aged.layout SET functions = 'older'")
    code, script, _ = desk.run("--sql", "--namespace", "aged")
    assert (code, "CREATE TABLE job" in script) == (0, False)
    assert "CREATE OR REPLACE FUNCTION claim" in script
    code, out, err = desk.run("--status", "--namespace", "aged")
    assert (code, f"layout {latest} of {latest}, functions older" in out) == (1, True)
    assert "run windlass migrate" in err
    owner.execute(f"UPDATE aged.layout SET number = {latest + 1}, functions = 'newer'")  # noqa: S608 - a number
    assert desk.run("--status", "--namespace", "aged")[0] == 0, "a newer program was here"


def test_a_role_that_may_not_is_told_so(desk: Desk, owner: psycopg.Connection[Any]) -> None:
    owner.execute("CREATE ROLE visitor LOGIN")
    theirs = desk.dsn.replace("windlass@", "visitor@")
    try:
        code, out, err = desk.run("--namespace", "forbidden", WINDLASS_URL=theirs)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert 'this role may not make or renew the namespace "forbidden"' in err
        assert "permission denied for database" in err
        assert desk.run("--namespace", "forbidden", "--url", desk.dsn, WINDLASS_URL=theirs)[0] == 0
        code, _, err = desk.run("--status", "--namespace", "forbidden", WINDLASS_URL=theirs)
        assert (code, "permission denied for schema" in err) == (1, True)
    finally:
        owner.execute("DROP ROLE visitor")


def test_a_role_with_the_documented_rights_can_work(desk: Desk, owner: psycopg.Connection[Any]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "postgres.md").read_text()
    grants = [line for line in page.splitlines() if line.startswith("GRANT ")]
    assert len(grants) == 3
    assert desk.run("--namespace", "rights")[0] == 0
    owner.execute("CREATE ROLE worker LOGIN")
    for grant in grants:
        owner.execute(grant.replace("SCHEMA windlass", "SCHEMA rights").encode())
    app = Windlass(desk.dsn.replace("windlass@", "worker@"), namespace="rights")

    @app.task
    async def greet(name: str) -> None:
        async with current.transaction() as connection:
            await connection.execute("SELECT %s", [name])

    async def work() -> None:
        async with app.worker():
            job = await greet.using(lane="acme", key="once").aenqueue("x")
            await job.aresult(timeout=30)
        broker = await app.broker()
        await broker.sweep(limit=100)
        assert not [text for text in await broker.warnings() if "older" in text]
        await app.aclose()

    try:
        asyncio.run(work())
    finally:
        owner.execute("DROP OWNED BY worker")
        owner.execute("DROP ROLE worker")


_SECOND = """
CREATE TABLE parcel (n bigint PRIMARY KEY);
SELECT _give_rights_of('lease', 'parcel');
"""
"""A migration that was made up, with the step that every one with a new table takes."""


def test_a_second_migration_is_made_beside_workers_that_run(
    namespaces: Namespaces, owner: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds, so that programs of before go on; whoever may work with the jobs may work with its table."""
    url = namespaces.server.dsn

    async def rolled() -> None:
        older = Windlass(url, namespace="rolled")
        noted = older.task(_noted)
        await older.broker()
        owner.execute('CREATE ROLE "a worker" LOGIN')
        owner.execute('GRANT ALL ON ALL TABLES IN SCHEMA rolled TO "a worker"')
        owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA rolled TO PUBLIC")
        made = (*install.migrations(), _SECOND)
        monkeypatch.setattr(install, "migrations", lambda: made)
        monkeypatch.setattr(migrating, "migrations", lambda: made)
        before = await migrating.migrate(url, "rolled")
        assert (before.layout, before.latest, before.is_current) == (1, 2, False)
        assert (await migrating.layout_state(url, "rolled")).is_current
        async with older.worker():
            handle = await noted.aenqueue(3)
            assert await handle.aresult(timeout=30) == 6
        monkeypatch.undo()
        assert (await migrating.layout_state(url, "rolled")).functions == "newer"
        await older.aclose()

    try:
        asyncio.run(rolled())
        found = owner.execute(
            "SELECT has_table_privilege(r, 'rolled.parcel', p) FROM"
            " (VALUES ('a worker', 'SELECT, INSERT, UPDATE, DELETE'), ('public', 'SELECT'),"
            " ('public', 'DELETE')) w (r, p)"
        ).fetchall()
        assert [each for (each,) in found] == [True, True, False]
    finally:
        owner.execute('DROP OWNED BY "a worker"')
        owner.execute('DROP ROLE "a worker"')


async def _noted(number: int) -> int:
    return 2 * number


def test_mistakes_are_one_line(desk: Desk) -> None:
    for arguments, line in (
        (("--sql", "--status"), "use one of them"),
        (("--namespace", "No Name"), "namespace"),
        (("--url", "mysql://u:secret@h/d"), '--url must start with "postgresql:", not with "mysql:"'),
    ):
        code, out, err = desk.run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert line in err
        assert "secret" not in err


def test_other_stores_need_none(desk: Desk) -> None:
    code, out, err = desk.run(WINDLASS_URL="sqlite:///x.db")
    assert (code, out, "needs no migrations" in err) == (0, "", True)
    assert not (desk.folder / "x.db").exists()
