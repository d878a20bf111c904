"""Find the properties of a queue or an exchange. AMQP has no request for that. But a client that declares an
existing one with other properties is refused: the error says what differs, and nothing is changed.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiormq import Channel
from aiormq import exceptions as amqp

from windlass.bridges.rabbitmq.link import Link

_DIFFERS: Final = re.compile(
    r"inequivalent arg '(?P<name>[^']+)' for .*?: received .*? but current is "
    r"(?:the value )?(?:'(?P<value>[^']*)'(?: of type '(?P<type>\w+)')?|(?P<none>none))"
)
_DROPS_AFTER_TWENTY = (4, 0)
_TRIES = 12


class Made(msgspec.Struct):
    """How something was declared, as far as this is known."""

    known: bool = False
    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}

    @property
    def kind(self) -> str:
        """Of a queue."""
        return str(self.arguments.get("x-queue-type") or "classic")


async def warnings_of_queue(link: Link, queue: str) -> list[str]:
    """What an operator should know of a queue; it must be there (`BridgeRefused`)."""

    async def there() -> None:
        channel = await link.channel()
        await channel.queue_declare(queue, passive=True)
        await channel.close()

    await link.ask(there)
    made = await _made(
        link,
        lambda channel, said: channel.queue_declare(
            queue, durable=said.durable, auto_delete=said.auto_delete, arguments=said.arguments or None
        ),
        Made(arguments={"x-queue-type": "quorum"}),
    )
    return _about_queue(queue, made, link.version) if made.known else []


async def warnings_of_exchange(link: Link, exchange: str) -> list[str]:
    """What an operator should know of an exchange that is there."""
    if not exchange or exchange.startswith("amq."):
        return []
    said = Made(arguments={"type": "topic"})

    def declare(channel: Channel, said: Made) -> Awaitable[object]:
        others = {name: value for name, value in said.arguments.items() if name != "type"}
        return channel.exchange_declare(
            exchange,
            exchange_type=said.arguments["type"],
            durable=said.durable,
            auto_delete=said.auto_delete,
            arguments=others or None,
        )

    made = await _made(link, declare, said)
    if made.known and not made.durable:
        return [f'exchange "{exchange}" is not durable: it is gone when RabbitMQ is restarted']
    return []


def _about_queue(queue: str, made: Made, version: tuple[int, ...]) -> list[str]:
    found: list[str] = []
    if not made.durable:
        found.append(
            f'queue "{queue}" is not durable: its messages are gone when RabbitMQ is restarted; declare it '
            "durable"
        )
    elif made.kind == "classic":
        found.append(
            f'queue "{queue}" is a classic queue: its messages are on one node alone; in a cluster declare a '
            "quorum queue"
        )
    if made.auto_delete:
        found.append(
            f'queue "{queue}" is gone with its last consumer (auto_delete), and its messages are, too'
        )
    if made.kind == "quorum" and version >= _DROPS_AFTER_TWENTY:
        limit = made.arguments.get("x-delivery-limit")
        if limit is None and "x-dead-letter-exchange" not in made.arguments:
            found.append(
                f'queue "{queue}": RabbitMQ drops a message that it has delivered twenty times, as it may '
                "when the store is away again and again; set x-dead-letter-exchange, or delivery-limit=-1 "
                "by a policy"
            )
    if made.arguments.get("x-overflow", "drop-head") == "drop-head" and (
        "x-max-length" in made.arguments or "x-max-length-bytes" in made.arguments
    ):
        found.append(
            f'queue "{queue}" drops its oldest messages when it is full; set x-overflow=reject-publish'
        )
    if "x-message-ttl" in made.arguments:
        found.append(f'queue "{queue}" drops messages that wait for longer than its x-message-ttl')
    return found


async def _made(link: Link, declare: Callable[[Channel, Made], Awaitable[object]], said: Made) -> Made:
    """Declare what is there until nothing differs. Not known: this login may not declare."""
    for _ in range(_TRIES):

        async def tried() -> str | None:
            channel = await link.channel()
            try:
                await declare(channel, said)
            except amqp.ChannelPreconditionFailed as refused:
                return str(refused)
            except amqp.AMQPChannelError:
                return ""
            await channel.close()
            return None

        differs = await link.ask(tried)
        if differs is None:
            said.known = True
            return said
        if not _learn(said, differs):
            return said
    return said


def _learn(said: Made, differs: str) -> bool:
    """Note what is different; False: it is not understood."""
    found = _DIFFERS.search(differs)
    if found is None:
        return False
    name, value = found["name"], found["value"]
    if name in ("durable", "auto_delete"):
        setattr(said, name, value == "true")
        if said.auto_delete or not said.durable:
            # A quorum queue is always durable, and a declaration of one that is not is refused as such.
            said.arguments.pop("x-queue-type", None)
    elif found["none"]:
        said.arguments.pop(name, None)
    elif found["type"] in (None, "longstr"):
        said.arguments[name] = value
    elif value.lstrip("-").isdecimal():
        said.arguments[name] = int(value)
    elif value in ("true", "false"):
        said.arguments[name] = value == "true"
    else:
        return False
    return True
