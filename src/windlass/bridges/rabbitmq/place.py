"""What a URL of RabbitMQ's names: `amqp://host/queue`, `amqp://host/vhost/exchange?key=jobs.dead`."""

import ssl

import msgspec

from windlass.bridges.addresses import Address
from windlass.core.option import shown, whole
from windlass.errors import InvalidOption

_OPTIONS = ("key", "prefetch", "cafile", "certfile", "keyfile")
_PREFETCH = 1_000
"""Twice what an intake receives at once: while the store takes the one half, the other is on its way."""
_MAX_PREFETCH = 65_535


class Endpoint(msgspec.Struct, frozen=True):
    """A queue, or an exchange; and what is said of it."""

    vhost: str
    name: str
    key: str
    """The routing key of messages that have none of their own."""
    prefetch: int


def place_of(address: Address) -> Endpoint:
    """Take the path and the options of a URL apart, or refuse them."""
    address.refuse_unknown(*_OPTIONS)
    if not address.hosts:
        raise InvalidOption(f"{address.shown} names no host, as amqp://host/orders does")
    if len(address.path) > 2:
        raise InvalidOption(
            f"{address.shown}: between slashes are a virtual host and a name; a slash inside of them is "
            "written %2F"
        )
    vhost = address.path[0] if len(address.path) == 2 else "/"
    return Endpoint(
        vhost,
        address.path[-1] if address.path else "",
        address.options.get("key", ""),
        _prefetch(address.options.get("prefetch")),
    )


def tls_of(address: Address) -> ssl.SSLContext | None:
    """How to trust an `amqps://` host, and how to show who is calling; None: `amqp://`."""
    if address.scheme != "amqps":
        return None
    try:
        context = ssl.create_default_context(cafile=address.options.get("cafile"))
        if "certfile" in address.options:
            context.load_cert_chain(address.options["certfile"], address.options.get("keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise InvalidOption(f"{address.shown}: cafile, certfile or keyfile cannot be used: {error}") from None
    return context


def _prefetch(text: str | None) -> int:
    if text is None:
        return _PREFETCH
    try:
        given = int(text)
    except ValueError:
        raise InvalidOption(f"prefetch={shown(text)} is not a whole number") from None
    return whole(given, name="prefetch", least=1, most=_MAX_PREFETCH)
