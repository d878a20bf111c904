"""Enqueue and completion in a transaction of the caller's own, on the caller's own connection.

Rolled back means never enqueued; invisible before the commit; taken in by the store after it. `Enqueuing` is
the statement and its arguments, for any driver; `enqueue_on` executes it on one of asyncpg's or psycopg's.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

from windlass.broker.postgres import answers
from windlass.broker.postgres.arrays import jobs_of
from windlass.broker.postgres.checks import check_settlements
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.records import state_of, uuid_of
from windlass.core.bounds import check_items
from windlass.core.group import refused_whole, too_large
from windlass.core.job import NewJob, Receipt
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.settlement import Settlement
from windlass.core.units import Micros
from windlass.errors import ContractError

Style = Literal["dollar", "format"]
"""How the places of arguments are written: `$1` (asyncpg) or `%s` (psycopg, and what stands on it)."""

_TYPES: Final = [
    "bigint",
    "int[]",
    "uuid[]",
    "text[]",
    "text[]",
    "text[]",
    "smallint[]",
    "text[]",
    "smallint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bytea[]",
    "bytea[]",
    "bytea[]",
    "int[]",
    "bigint[]",
    "text[]",
    "int[]",
    "uuid[]",
    "smallint[]",
]
_COLUMNS: Final = "i, status, of, refusal, why"


class Enqueuing:
    """A call of `enqueue` on a connection that is not ours: what to execute, and what its rows mean."""

    def __init__(
        self,
        namespace: str,
        groups: Sequence[Sequence[NewJob]],
        *,
        style: Style = "dollar",
        now: Micros | None = None,
    ) -> None:
        check_items("groups", groups)
        self._groups = groups
        self._refused = [too_large(group) for group in groups]
        accepted = [group for group, large in zip(groups, self._refused, strict=True) if not large]
        ends: list[int] = []
        for group in accepted:
            ends.append((ends[-1] if ends else 0) + len(group))
        places = [f"${place}" if style == "dollar" else "%s" for place in range(1, len(_TYPES) + 1)]
        typed = ", ".join(f"{place}::{type_}" for place, type_ in zip(places, _TYPES, strict=True))
        self.statement = f"SELECT {_COLUMNS} FROM {quoted(namespace)}.enqueue_here({typed})"  # noqa: S608 - an identifier, quoted
        self.arguments: tuple[Any, ...] = (now, ends, *jobs_of([job for group in accepted for job in group]))

    def receipts(self, rows: Sequence[Sequence[Any]]) -> tuple[tuple[Receipt, ...], ...]:
        """What became of each job, in its place."""
        columns = _COLUMNS.split(", ")
        found = iter([dict(zip(columns, tuple(row), strict=True)) for row in rows])
        return tuple(
            refused_whole(group, large)
            if large
            else tuple(answers.receipt(job.id, row) for job, row in zip(group, found, strict=False))
            for group, large in zip(self._groups, self._refused, strict=True)
        )


async def enqueue_on(
    connection: Any, namespace: str, groups: Sequence[Sequence[NewJob]], *, now: Micros | None = None
) -> Sequence[Sequence[Receipt]]:
    """Enqueue in the transaction that is open on a connection of asyncpg, or of psycopg for coroutines."""
    if hasattr(connection, "fetch"):
        call = Enqueuing(namespace, groups, now=now)
        return call.receipts(await connection.fetch(call.statement, *call.arguments))
    call = Enqueuing(namespace, groups, style="format", now=now)
    cursor = await connection.execute(call.statement, call.arguments)
    return call.receipts(await cursor.fetchall())


def enqueue_on_blocking(
    connection: Any, namespace: str, groups: Sequence[Sequence[NewJob]], *, now: Micros | None = None
) -> Sequence[Sequence[Receipt]]:
    """The same on a blocking connection of the DB-API kind whose places are `%s`: psycopg's, Django's."""
    call = Enqueuing(namespace, groups, style="format", now=now)
    with connection.cursor() as cursor:
        cursor.execute(call.statement, call.arguments)
        return call.receipts(cursor.fetchall())


_CHILD_TYPES: Final = _TYPES[2:]
_SETTLE_TYPES: Final = ("bigint", "uuid", "bigint", "bigint", "bytea", "text", *_CHILD_TYPES)


async def settle_on(
    connection: Any, namespace: str, settlement: Settlement, *, now: Micros | None = None
) -> Answer:
    """Settle a lease as done in the transaction that is open on asyncpg's connection, last before its commit.

    Unless the verdict is APPLIED the lease was taken away, or what came with it cannot be kept: roll back.
    After the commit an ordinary settle with the same fence answers ALREADY, and so it tells how a commit went
    whose answer was lost.
    """
    check_settlements([settlement], None)
    if settlement.outcome is not Outcome.DONE:
        raise ContractError(f"only done travels with a transaction's commit, not {settlement.outcome}")
    large = too_large(settlement.spawn)
    places = ", ".join(f"${place}::{type_}" for place, type_ in enumerate(_SETTLE_TYPES, 1))
    row = await connection.fetchrow(
        f"SELECT verdict, outcome, state, why FROM {quoted(namespace)}.settle_here({places})",  # noqa: S608 - an identifier, quoted
        now,
        uuid_of(settlement.job),
        settlement.fence,
        settlement.runtime,
        settlement.result,
        next(iter(large.values()))[1] if large else None,
        *jobs_of(() if large else settlement.spawn),
    )
    outcome: str | None = row["outcome"]
    return Answer(
        Verdict(row["verdict"]),
        None if outcome is None else Outcome(outcome),
        state_of(row["state"]),
        row["why"] or "",
    )
