"""Fetches Kafka: its jars by Maven."""

from pathlib import Path

from tools.servers.maven import dependency, fetch_jars

from windlass.verify.brokers.kafka import VERSION, jars_in


def fetch(folder: Path) -> None:
    """Put the jars into the folder, unless they are there."""
    wanted = [
        dependency("org.apache.kafka", "kafka_2.13", VERSION),
        # The console's programs, without what others of its programs need.
        dependency("org.apache.kafka", "kafka-tools", VERSION, alone=True),
        dependency("org.slf4j", "slf4j-simple", "1.7.36"),
    ]
    fetch_jars(jars_in(folder), wanted, what=f"Kafka {VERSION} (45 MB)")
