"""Fetches ElasticMQ, which speaks the protocol of SQS: its jars by Maven."""

from pathlib import Path

from tools.servers.maven import dependency, fetch_jars

from windlass.verify.brokers.elasticmq import VERSION, jars_in


def fetch(folder: Path) -> None:
    """Put the jars into the folder, unless they are there."""
    wanted = [dependency("org.elasticmq", "elasticmq-server_3", VERSION)]
    fetch_jars(jars_in(folder), wanted, what=f"ElasticMQ {VERSION} (43 MB)")
