"""A Kafka of one's own: one broker that is its own controller (KRaft), on the loopback."""

import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from windlass.errors import StoreError
from windlass.verify.brokers.java import OPTIONS, jars, java
from windlass.verify.brokers.places import servers_folder
from windlass.verify.processes import Starter
from windlass.verify.stores.own import ANSWERS_WITHIN, Server, free_port

VERSION: Final = "4.3.1"
_PLAIN: Final = "PLAIN"
_CONTROLLER: Final = "CONTROLLER"
_SETTINGS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": _CONTROLLER,
    "inter.broker.listener.name": _PLAIN,
    "auto.create.topics.enable": "false",
    "background.threads": "2",
    "num.io.threads": "2",
    "num.network.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.retention.check.interval.ms": "500",
    # A broker that was killed comes back after its session has ended; the default is 9 s.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "group.initial.rebalance.delay.ms": "0",
    # Topics of its own are made for three brokers, unless told otherwise.
    **{
        f"{topic}.{setting}": "1"
        for topic in ("transaction.state.log", "share.coordinator.state.topic")
        for setting in ("replication.factor", "min.isr", "num.partitions")
    },
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
}


class Listener(NamedTuple):
    """A further door of the broker."""

    name: str
    port: int
    seen_at: int
    """The port that clients are told to come to: this one, or that of a proxy before it."""
    protocol: str = "PLAINTEXT"
    """`SSL`, `SASL_PLAINTEXT`, `SASL_SSL`."""
    host: str = "127.0.0.1"
    """The name that clients are told."""
    settings: Mapping[str, str] = {}
    """Of this listener alone: `ssl.keystore.location`."""


def jars_in(folder: Path) -> Path:
    """Where `make servers` puts the jars."""
    return folder / "kafka" / VERSION


class OwnKafka(Server):
    """A broker whose topics have one replica. It keeps what it has acknowledged through `kill -9`."""

    kind = "kafka"
    durable = "one replica, not synced: it survives its process, not the machine"

    def __init__(
        self,
        starter: Starter,
        folder: Path,
        *listeners: Listener,
        scram: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`scram`: passwords by user, for SASL with SCRAM. `Missing`: it is not on this machine."""
        self._java = java("Kafka")
        self._jars = jars(jars_in(servers_folder()), f"Kafka {VERSION}", "kafka")
        super().__init__(starter, folder)
        self._listeners = listeners
        self._controller = free_port()
        self._properties = folder / "server.properties"
        self._properties.write_text(_written(self._all_settings(settings or {})))
        self._format(scram or {})

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return f"127.0.0.1:{self.port}"

    def url(self, address: tuple[str, int] | None = None) -> str:
        """Without a topic."""
        host, port = address or ("127.0.0.1", self.port)
        return f"kafka://{host}:{port}"

    def command(self) -> list[str]:
        """The broker."""
        return [*self._program("kafka.Kafka"), str(self._properties)]

    def tool(self, main: str, *arguments: str) -> list[str]:
        """One of Kafka's own programs: `org.apache.kafka.tools.ConsoleProducer`."""
        return [*self._program(main), *arguments]

    def answers(self) -> bool:
        """Whether it knows itself as a broker."""
        with socket.socket() as link:
            if link.connect_ex(("127.0.0.1", self.port)):
                return False
        from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra

        try:
            with self.admin() as admin:
                return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def admin(self) -> Any:
        """A client that operators would use. It must be closed: the garbage collector may run in a
        thread of the client's own, and taking it down from there ends the process.
        """
        return _library().AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def make_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic, and wait until it is there. `retention_ms="1000"` is `retention.ms`."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = _library().NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        self._does(lambda admin: admin.create_topics([new]))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self._does(lambda admin: admin.delete_topics([topic]))

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""
        self._does(lambda admin: admin.create_partitions([_library().NewPartitions(topic, total)]))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Let the messages before an offset be gone, as retention does."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - an extra

        self._does(lambda admin: admin.delete_records([TopicPartition(topic, partition, before)]))

    def _does(self, what: Callable[[Any], Mapping[Any, Any]]) -> None:
        with self.admin() as admin:
            for future in what(admin).values():
                future.result(ANSWERS_WITHIN)

    def _all_settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        inner = f"{_PLAIN}://127.0.0.1:{self.port}"
        controller = f"{_CONTROLLER}://127.0.0.1:{self._controller}"
        protocols = {_PLAIN: "PLAINTEXT", _CONTROLLER: "PLAINTEXT"}
        protocols.update({each.name: each.protocol for each in self._listeners})
        return {
            **_SETTINGS,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": ",".join(
                [inner, controller, *(f"{each.name}://127.0.0.1:{each.port}" for each in self._listeners)]
            ),
            "advertised.listeners": ",".join(
                [inner, *(f"{each.name}://{each.host}:{each.seen_at}" for each in self._listeners)]
            ),
            "listener.security.protocol.map": ",".join(f"{name}:{how}" for name, how in protocols.items()),
            **{
                f"listener.name.{each.name.lower()}.{name}": value
                for each in self._listeners
                for name, value in each.settings.items()
            },
            "log.dirs": str(self.data),
            **settings,
        }

    def _format(self, scram: Mapping[str, str]) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        users = [
            part
            for user, password in scram.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for part in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]
        # An id that begins with a dash would be taken for an option.
        known = ["format", f"--cluster-id={cluster}", "-c", str(self._properties), *users]
        process = self._starter.start("kafka-format", self.tool("kafka.tools.StorageTool", *known))
        if not process.wait(ANSWERS_WITHIN) or process.process.returncode:
            raise StoreError(f"a folder for Kafka could not be made: {process.last_words()}")

    def _program(self, main: str) -> list[str]:
        logs = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return [self._java, *OPTIONS, "-Xmx256m", logs, "-cp", f"{self._jars}/*", main]


def _written(settings: Mapping[str, str]) -> str:
    lines = (f"{name}={value.replace(chr(92), chr(92) * 2)}" for name, value in settings.items())
    return "\n".join([*lines, ""])


def _library() -> Any:
    """The client, an extra; without its types, which name other modules than its documentation does."""
    return import_module("confluent_kafka.admin")
