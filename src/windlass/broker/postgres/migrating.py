"""Bringing a namespace up to date on purpose: what there is, what would run, and running it.

Opening a broker does the same where its role may. `windlass migrate` is for those whose workers may not, and
for those who want to see it first.
"""

from typing import Any

import msgspec
import psycopg

from windlass.broker.postgres.install import REVISION, fingerprint, install, migrations, script, state
from windlass.broker.postgres.pool import Pool
from windlass.broker.postgres.trouble import forbidden
from windlass.broker.postgres.url import read_url


class LayoutState(msgspec.Struct, frozen=True, kw_only=True):
    """What is installed of a namespace, compared with this program."""

    namespace: str
    layout: int
    """Migrations that were made; 0: none, or no such schema."""
    latest: int
    """Migrations that this program knows."""
    functions: str
    """`current`, `older`, `newer` or `missing`."""

    @property
    def is_current(self) -> bool:
        """Whether nothing would run."""
        return self.layout >= self.latest and self.functions in ("current", "newer")


async def up_to_date(connection: psycopg.AsyncConnection[Any], namespace: str) -> None:
    """Install what is missing; say so if the role may not."""
    try:
        await install(connection, namespace)
    except psycopg.Error as error:
        raise forbidden(error, namespace) or error from error


async def layout_state(url: str, namespace: str) -> LayoutState:
    """Look what is installed of a namespace; nothing is changed."""
    pool = Pool(read_url(url))
    try:
        found = await pool.use(lambda connection: _state(connection, namespace))
    finally:
        await pool.close()
    layout, revision, functions = found or (0, 0, "")
    if revision > REVISION or layout > len(migrations()):
        kind = "newer"
    elif functions == fingerprint():
        kind = "current"
    else:
        kind = "older" if functions else "missing"
    return LayoutState(namespace=namespace, layout=layout, latest=len(migrations()), functions=kind)


async def _state(connection: psycopg.AsyncConnection[Any], namespace: str) -> tuple[int, int, str] | None:
    try:
        return await state(connection, namespace)
    except psycopg.Error as error:
        raise forbidden(error, namespace) or error from error


async def migrate(url: str, namespace: str) -> LayoutState:
    """Bring a namespace up to date. Returns what was installed before."""
    before = await layout_state(url, namespace)
    pool = Pool(read_url(url))
    try:
        await pool.use(lambda connection: up_to_date(connection, namespace))
    finally:
        await pool.close()
    return before


def sql(before: LayoutState) -> str:
    """All that would run."""
    return "" if before.is_current else script(before.namespace, layout=before.layout)
