"""Enqueue and completion in a transaction of the caller's own, on the caller's own connection.

Rolled back means never enqueued; invisible before the commit; taken in by the store after it. `Enqueuing` is
the statement and its arguments, for any driver; `enqueue_on` executes it on one that `callers` knows.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NoReturn

from windlass.broker.postgres import answers
from windlass.broker.postgres.arrays import jobs_of
from windlass.broker.postgres.callers import Style, fetch, fetch_blocking
from windlass.broker.postgres.checks import check_settlements
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.records import id_of, state_of
from windlass.core.bounds import check_items
from windlass.core.group import refused_whole, too_large
from windlass.core.job import NewJob, Receipt
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.settlement import Settlement
from windlass.core.units import Micros
from windlass.errors import ContractError, StoreError

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
_COLUMNS: Final = ("i", "status", "of", "refusal", "why")
_ABSENT: Final = frozenset({"3F000", "42883", "42P01"})
"""No such schema, function or table."""
_FORBIDDEN: Final = "42501"


class Enqueuing:
    """A call of `enqueue` on a connection that is not ours: what to execute, and what its rows mean."""

    def __init__(
        self,
        namespace: str,
        groups: Sequence[Sequence[NewJob]],
        *,
        database: str | None = None,
        now: Micros | None = None,
    ) -> None:
        check_items("groups", groups)
        self._namespace = namespace
        self._database = database
        self._groups = groups
        self._refused = [too_large(group) for group in groups]
        accepted = [group for group, large in zip(groups, self._refused, strict=True) if not large]
        ends = list(accumulate(map(len, accepted)))
        self._arguments = (now, ends, *jobs_of([job for group in accepted for job in group]))

    def call(self, style: Style) -> tuple[str, tuple[Any, ...]]:
        """What to execute, and its arguments."""
        schema = quoted(self._namespace)
        if style == "format":
            schema = schema.replace("%", "%%")
        places = [f"${place}" if style == "dollar" else "%s" for place in range(1, len(_TYPES) + 1)]
        typed = ", ".join(f"{place}::{type_}" for place, type_ in zip(places, _TYPES, strict=True))
        statement = f"SELECT {', '.join(_COLUMNS)}, current_database() FROM {schema}.enqueue_here({typed})"  # noqa: S608 - an identifier, quoted
        return statement, self._arguments

    def receipts(self, rows: Sequence[Sequence[Any]]) -> tuple[tuple[Receipt, ...], ...]:
        """What became of each job, in its place."""
        for row in rows[:1]:
            self._check_database(row[len(_COLUMNS)])
        found = iter([_receipt(row) for row in rows])
        return tuple(
            refused_whole(group, large)
            if large
            else tuple(answers.receipt(job.id, row) for job, row in zip(group, found, strict=False))
            for group, large in zip(self._groups, self._refused, strict=True)
        )

    def _check_database(self, name: str) -> None:
        """Two databases may have a namespace of the same name, and workers serve only one of them."""
        if self._database is not None and name != self._database:
            raise StoreError(
                f'this connection leads to the database "{name}", the jobs are in "{self._database}":'
                " roll back, and give a connection to that one"
            )

    def failed(self, error: Exception) -> NoReturn:
        """Say in a line what a driver's error means where that is known; else pass it on as it is."""
        code = _code(error)
        schema = quoted(self._namespace)
        if code in _ABSENT:
            raise StoreError(
                f'the database of this connection has no namespace "{self._namespace}", or an older one:'
                " give a connection to the database of the jobs, or run `windlass migrate` for it"
            ) from error
        if code == _FORBIDDEN:
            raise StoreError(
                f"the role of this connection may not enqueue: GRANT USAGE ON SCHEMA {schema} TO that role"
            ) from error
        raise error


def _code(error: BaseException | None) -> str | None:
    """The server's code: of a driver's own error, or of the one inside of SQLAlchemy's or Django's."""
    while error is not None:
        code = getattr(error, "sqlstate", None)
        if isinstance(code, str):
            return code
        error = getattr(error, "orig", None) or error.__cause__
    return None


def _receipt(row: Sequence[Any]) -> dict[str, Any]:
    """A row by the names of its columns. Most drivers have a class of their own for ids."""
    found = dict(zip(_COLUMNS, tuple(row), strict=False))
    return {**found, "of": None if found["of"] is None else str(found["of"])}


async def enqueue_on(connection: Any, call: Enqueuing) -> Sequence[Sequence[Receipt]]:
    """Enqueue in the transaction that is open on a connection for coroutines."""
    try:
        rows = await fetch(connection, call.call)
    except Exception as error:  # noqa: BLE001 - of any driver; all but two kinds are passed on
        call.failed(error)
    return call.receipts(rows)


def enqueue_on_blocking(connection: Any, call: Enqueuing) -> Sequence[Sequence[Receipt]]:
    """The same on a connection that blocks."""
    try:
        rows = fetch_blocking(connection, call.call)
    except Exception as error:  # noqa: BLE001 - likewise
        call.failed(error)
    return call.receipts(rows)


_CHILD_TYPES: Final = _TYPES[2:]
_SETTLE_TYPES: Final = ("bigint", "uuid", "bigint", "bigint", "bytea", "text", *_CHILD_TYPES)


class Completing:
    """A settlement as done in a transaction of the job's own: what to execute, and what its row means.

    It is executed on a connection of `transaction`, last before its commit. Unless the verdict is APPLIED the
    lease was taken away, or what came with it cannot be kept: roll back. After the commit an ordinary settle
    with the same fence answers ALREADY, and so it tells how a commit went whose answer was lost.
    """

    def __init__(self, namespace: str, settlement: Settlement, *, now: Micros | None = None) -> None:
        check_settlements([settlement], None)
        if settlement.outcome is not Outcome.DONE:
            raise ContractError(f"only done travels with a transaction's commit, not {settlement.outcome}")
        large = too_large(settlement.spawn)
        places = ", ".join(f"${place}::{type_}" for place, type_ in enumerate(_SETTLE_TYPES, 1))
        columns = "verdict, outcome, state, why"
        self.statement = f"SELECT {columns} FROM {quoted(namespace)}.settle_here({places})".encode()  # noqa: S608 - an identifier, quoted
        self.arguments = (
            now,
            id_of(settlement.job),
            settlement.fence,
            settlement.runtime,
            settlement.result,
            next(iter(large.values()))[1] if large else None,
            *jobs_of(() if large else settlement.spawn),
        )

    def answer(self, row: Sequence[Any]) -> Answer:
        """What became of the lease."""
        verdict, outcome, state, why = row
        return Answer(
            Verdict(verdict), None if outcome is None else Outcome(outcome), state_of(state), why or ""
        )
