"""No queue at all: a bare `BEGIN; INSERT; COMMIT`, the most that one durable job per call can reach."""

import os
import time

import apsw
from bench_peer import URL, Peer

from windlass.core.ids import new_job_id


class Bare(Peer):
    """A table with a primary key, at the durability of Windlass."""

    def open(self) -> None:
        """Make the table."""
        self.connection = apsw.Connection(URL.removeprefix("sqlite://"))
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, payload BLOB) STRICT")

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def enqueue(self, text: str) -> None:
        """One row."""
        self.connection.execute("BEGIN IMMEDIATE")
        row = (new_job_id(time.time_ns() // 1_000_000, os.urandom(10)), text.encode())
        self.connection.execute("INSERT INTO t VALUES (?1, ?2)", row)
        self.connection.execute("COMMIT")


PEER = Bare()
