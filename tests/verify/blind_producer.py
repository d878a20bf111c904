"""A producer that does not notice when its SQLite file is replaced: a planted bug."""

from windlass.broker.sqlite.identity import Identity
from windlass.verify import producer


def _look(_identity: Identity, _connection: object) -> None:
    """See nothing."""


if __name__ == "__main__":
    Identity.look = _look  # type: ignore[method-assign]
    producer.main()
