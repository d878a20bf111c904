"""The transactional store: a schema of a PostgreSQL database, 15 or newer (`postgres://…`)."""

from windlass.broker.postgres.broker import PostgresBroker
from windlass.broker.postgres.url import read_url

__all__ = ["PostgresBroker", "read_url"]
