"""A producer that does not notice when its SQLite file is replaced: a planted bug."""

from windlass.broker.sqlite.identity import Identity
from windlass.verify import producer


def _see_nothing(_identity: Identity, _connection: object = None) -> None:
    """See nothing."""


if __name__ == "__main__":
    for look in ("look_before", "look", "look_now", "look_now_and_then"):
        setattr(Identity, look, _see_nothing)
    producer.main()
