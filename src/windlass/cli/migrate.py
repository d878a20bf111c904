"""`windlass migrate`: bring the schema of a PostgreSQL namespace up to date."""

import asyncio
from typing import Annotated

import msgspec
from cyclopts import Parameter

from windlass.admin.migration import Migration
from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.loading import load_app
from windlass.cli.output import say, say_aside


def migrate_store(
    app: given.App,
    /,
    *,
    sql: Annotated[bool, Parameter(help="Print the SQL that would run, and run nothing.")] = False,
    status: Annotated[
        bool, Parameter(help="Print the version of the schema. The exit code is 1 if it is not up to date.")
    ] = False,
    namespace: Annotated[
        str | None,
        Parameter(help="The namespace, which is also the name of the schema; by default the app's."),
    ] = None,
    url: Annotated[
        str | None,
        Parameter(
            help="A URL of the same database with a role that may create tables. By default the app's."
        ),
    ] = None,
    json: given.Json = False,
) -> int:
    """Bring the schema of a PostgreSQL namespace up to date. Workers may keep running."""
    if sql and status:
        raise UsageError("--sql prints the SQL that would run, --status whether any would: use one of them")
    migration = Migration(load_app(app).config, url=url, namespace=namespace)
    if not migration.is_needed:
        say_aside(
            f"windlass: {migration.store}: needs no migrations; a store of it is made when it is opened"
        )
        return 0
    return asyncio.run(_print_sql(migration) if sql else _report(migration, json=json, change=not status))


async def _print_sql(migration: Migration) -> int:
    text = await migration.sql()
    say(text or f'-- namespace "{migration.namespace}" is up to date: there is nothing to run')
    return 0


async def _report(migration: Migration, *, json: bool, change: bool) -> int:
    before = await (migration.run() if change else migration.layout_state())
    now = await migration.layout_state()
    if json:
        said = {**msgspec.structs.asdict(now), "was": before.layout, "current": now.is_current}
        say(msgspec.json.encode(said).decode())
    else:
        changed = "" if before == now else f" (was: layout {before.layout}, functions {before.functions})"
        say(
            f'namespace "{now.namespace}": layout {now.layout} of {now.latest}, functions {now.functions}'
            f"{changed}"
        )
        if not now.is_current:
            say_aside("windlass: it is not up to date: run windlass migrate")
    return 0 if now.is_current else 1
