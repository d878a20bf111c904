"""What an operator should know of the server: for `windlass doctor`."""

from collections.abc import Iterable

import msgspec

from windlass.broker.postgres.driver import Row
from windlass.broker.postgres.install import REVISION, migrations
from windlass.core.units import MINUTE, SECOND, Micros

_LONG: Micros = 5 * MINUTE
_MANY_DEAD = 10_000
_MANY_ASTRAY = 100_000
_MANY_TRANSACTIONS = 200_000
_MEBIBYTE = 1024 * 1024
_MUCH = 256 * _MEBIBYTE


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the server and of the namespace in it."""

    server: str
    synchronous_commit: str
    in_recovery: bool
    layout: int
    revision: int
    rows_live: int
    rows_dead: int
    bytes: int
    vacuumed_before: Micros | None
    """Since any table of the namespace was last vacuumed; None: never."""
    oldest_transaction: Micros | None
    """For how long the transaction has been open that keeps vacuum from its work."""
    oldest_by: str | None
    not_taken_in: int
    """Groups that callers' own transactions have left, not accepted yet (up to 10,000)."""
    bloated: str | None = None
    """The table with the most room that nothing uses."""
    bloat: int = 0
    """How many bytes that is, by estimate."""
    partitions: int = 0
    in_default: int = 0
    """Rows that no partition of their own was there for."""
    pinned_by: str | None = None
    """The standby or replication slot that keeps vacuum from its work."""
    pinned_for: int = 0
    """Since how many transactions."""

    def warnings(self) -> tuple[str, ...]:
        """What is wrong, each with what to do."""
        return tuple(text for text in self._warnings() if text)

    def _warnings(self) -> tuple[str, ...]:
        behind = self.layout < len(migrations()) or self.revision < REVISION
        loose = self.synchronous_commit == "off"
        open_for = self.oldest_transaction or 0
        littered = self.rows_dead > max(_MANY_DEAD, 2 * self.rows_live)
        return (
            "the namespace is older than this program: run `windlass migrate`" if behind else "",
            "the server is a standby: connect to the primary" if self.in_recovery else "",
            "synchronous_commit is off: accepted jobs can be lost in a crash; set it to on" if loose else "",
            f"a transaction of {self.oldest_by} has been open for {open_for // SECOND} s and hinders vacuum:"
            " end it"
            if open_for > _LONG
            else "",
            f"{self.pinned_by} has hindered vacuum for {self.pinned_for:,} transactions: look for a long"
            " query on the standby, or drop the slot of one that is gone"
            if self.pinned_for > _MANY_TRANSACTIONS
            else "",
            f"{self.rows_dead:,} dead rows beside {self.rows_live:,} live ones: see that autovacuum runs"
            if littered
            else "",
            f"table {self.bloated} has about {self.bloat // _MEBIBYTE:,} MiB that nothing uses: REINDEX and"
            " VACUUM FULL it in a quiet hour, or use pg_repack"
            if self.bloat > max(_MUCH, self.bytes // 2)
            else "",
            f"{self.in_default:,} rows are in a default partition: workers make partitions as they sweep, so"
            " see that one runs"
            if self.in_default > _MANY_ASTRAY
            else "",
            f"{self.not_taken_in:,} jobs from callers' own transactions wait to be taken in: see that a"
            " worker runs"
            if self.not_taken_in >= _MANY_DEAD
            else "",
        )


def health_of(parts: Iterable[Row]) -> Health:
    """The state of health, from what the server said."""
    said = {name: value for part in parts for name, value in dict(part).items()}
    # Sums over no statistics are nothing.
    sums = {name: int(said[name] or 0) for name in ("rows_live", "rows_dead", "bytes", "bloat")}
    return msgspec.convert({**said, **sums}, Health)
