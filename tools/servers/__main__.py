"""Fetch all servers, or those that are named: `python -m tools.servers kafka`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.servers import clickhouse, elasticmq, kafka, rabbitmq
from tools.servers.fetching import CannotFetch

from windlass.verify.brokers.places import servers_folder

SERVERS: Mapping[str, Callable[[Path], None]] = {
    "kafka": kafka.fetch,
    "rabbitmq": rabbitmq.fetch,
    "elasticmq": elasticmq.fetch,
    "clickhouse": clickhouse.fetch,
}


def main(wanted: Sequence[str]) -> int:
    """Fetch them; the exit code."""
    folder, failed = servers_folder(), 0
    for name in wanted or SERVERS:
        try:
            SERVERS[name](folder)
        except CannotFetch as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = 1
        else:
            print(f"{name}: there")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
