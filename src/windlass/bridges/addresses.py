"""Which message broker a URL names, and how it is reached.

The table is fixed: nothing that comes from outside decides what is imported. An adapter is a folder of this
package whose `adapter.py` has `open_source(address)` and `open_sink(address)`, both async. It imports its
client, so it is imported when a bridge is opened (that of a front door when the app is made), and its extra
is needed only by those who use it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from windlass.bridges.sink import Sink
from windlass.bridges.source import LogSource, QueueSource
from windlass.core.option import shown
from windlass.errors import InvalidOption


class _Adapter(msgspec.Struct, frozen=True):
    module: str
    extra: str
    looks_like: str


_KAFKA = _Adapter("windlass.bridges.kafka.adapter", "kafka", "kafka://host:9092/topic")
_RABBITMQ = _Adapter("windlass.bridges.rabbitmq.adapter", "rabbitmq", "amqp://user@host/queue")
_NATS = _Adapter("windlass.bridges.nats.adapter", "nats", "nats://host:4222/STREAM")
_SQS = _Adapter("windlass.bridges.sqs.adapter", "sqs", "sqs://region/queue")
_REDIS = _Adapter("windlass.bridges.redis_lists.adapter", "redis", "redis://host:6379/0?list=celery")

_ADAPTERS: Final[Mapping[str, _Adapter]] = {
    "kafka": _KAFKA,
    "kafkas": _KAFKA,
    "amqp": _RABBITMQ,
    "amqps": _RABBITMQ,
    "nats": _NATS,
    "tls": _NATS,
    "sqs": _SQS,
    "redis": _REDIS,
    "rediss": _REDIS,
}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, taken apart. What an adapter does not know in `options` it refuses (`InvalidOption`)."""

    scheme: str
    user: str | None = None
    password: str | None = None
    hosts: tuple[tuple[str, int | None], ...] = ()
    """`host1:9092,host2:9092`."""
    path: tuple[str, ...] = ()
    """What stands between slashes: topic, virtual host and queue, stream."""
    options: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without the password."""
        return f"<Address {self.shown}>"

    @property
    def shown(self) -> str:
        """For people: without user, password and options."""
        hosts = ",".join(host if port is None else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.scheme}://{hosts}/{'/'.join(self.path)}"

    def refuse_unknown(self, *known: str) -> None:
        """Refuse options that nobody reads: a misspelled one would be silently without effect."""
        for name in self.options:
            if name not in known:
                raise InvalidOption(
                    f'{self.shown} has no option "{name}"; its options: {", ".join(sorted(known))}'
                )


def address_of(url: object) -> Address:
    """Take a URL apart, or refuse it. Passwords are never in the message."""
    if not isinstance(url, str) or "://" not in url:
        raise InvalidOption(
            f"a message broker is named by a URL such as {_KAFKA.looks_like}, not {_hidden(url)}"
        )
    scheme, _, rest = url.partition("://")
    if scheme not in _ADAPTERS:
        raise InvalidOption(
            f'no message broker is known by "{scheme}://"; known: '
            + ", ".join(f"{each}://" for each in _ADAPTERS)
        )
    parts = urlsplit(f"//{rest}")
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    return Address(
        scheme=scheme,
        user=unquote(user) if at else None,
        password=unquote(password) if colon else None,
        hosts=tuple(_host(each, scheme) for each in hosts.split(",") if each),
        path=tuple(unquote(part) for part in parts.path.split("/")[1:] if part),
        options=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )


def load_adapter(address: Address) -> None:
    """Import what opens it. Else some thread would do so when it is first used, and the child of a fork in
    that very moment would have half a module for ever. `InvalidOption`: its extra is missing.
    """
    _adapter(address)


async def open_source(address: Address) -> LogSource | QueueSource:
    """What messages are read from."""
    return cast("LogSource | QueueSource", await _adapter(address).open_source(address))


async def open_sink(address: Address) -> Sink:
    """What messages are published through."""
    return cast("Sink", await _adapter(address).open_sink(address))


def _adapter(address: Address) -> Any:
    adapter = _ADAPTERS[address.scheme]
    try:
        return import_module(adapter.module)
    except ModuleNotFoundError as missing:
        raise InvalidOption(
            f"{address.scheme}:// needs the package {missing.name}: pip install "
            f"'windlass-queue[{adapter.extra}]'"
        ) from missing


def _host(text: str, scheme: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidOption(f"{scheme}:// names a host that is none: {shown(text)}") from None
    return host, port


def _hidden(url: object) -> str:
    return "a text without ://" if isinstance(url, str) else shown(url)
