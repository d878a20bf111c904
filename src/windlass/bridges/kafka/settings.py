"""What librdkafka is told, from a URL: where the brokers are, who logs in, how long an answer may take."""

from collections.abc import Mapping
from typing import Any, Final

from windlass.bridges.addresses import Address
from windlass.core.duration import micros
from windlass.core.option import choice
from windlass.core.units import SECOND
from windlass.errors import InvalidOption

PORT: Final = 9092
ANSWERS_WITHIN: Final = 10.0
"""Seconds."""
GROUP: Final = "windlass"
DELIVERED_WITHIN: Final = 10.0
"""Seconds: what a store remembers of resends by default, so that no message of a front door comes later."""
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_FILES: Final = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "cert_key": "ssl.key.location"}


def check(address: Address) -> None:
    """Refuse a URL that says what nobody understands. Sources and sinks share their options, since the URL of
    a front door is that of both.
    """
    address.refuse_unknown("sasl", "group", "timeout", *_FILES)
    if not address.hosts:
        raise InvalidOption(f"{address.shown} names no broker: kafka://host:9092/topic")
    if len(address.path) > 1:
        raise InvalidOption(f"{address.shown} names more than a topic: kafka://host:9092/topic")


def topic_of(address: Address) -> str:
    """The topic; `InvalidOption`: there is none."""
    if not address.path:
        raise InvalidOption(f"{address.shown} names no topic: kafka://host:9092/topic")
    return address.path[0]


def group_of(address: Address) -> str:
    """The consumer group that monitors look at."""
    return address.options.get("group") or GROUP


def delivered_within(address: Address) -> float:
    """Seconds after which a message that was not acknowledged has failed."""
    return micros(address.options.get("timeout", DELIVERED_WITHIN), name="timeout") / SECOND


def client_settings(address: Address) -> dict[str, Any]:
    """What every client of an address is told."""
    return {
        "bootstrap.servers": ",".join(f"{host}:{port or PORT}" for host, port in address.hosts),
        "client.id": "windlass",
        # It would write to the standard error; what matters of it is told as errors of calls.
        "log_level": 0,
        # After an outage it comes back within a second, not within ten.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.timeout.ms": int(ANSWERS_WITHIN * 1_000),
        "socket.connection.setup.timeout.ms": int(ANSWERS_WITHIN * 1_000),
        "socket.keepalive.enable": True,
        **_security(address),
    }


def _security(address: Address) -> Mapping[str, Any]:
    tls = address.scheme == "kafkas"
    files = {_FILES[name]: address.options[name] for name in _FILES if name in address.options}
    if files and not tls:
        raise InvalidOption(f"{address.shown}: ca, cert and cert_key are of TLS: use kafkas://")
    if address.user is None:
        if "sasl" in address.options:
            raise InvalidOption(f"{address.shown}: sasl= without a user: kafkas://user:password@host/topic")
        return {"security.protocol": "SSL" if tls else "PLAINTEXT", **files}
    if "sasl" not in address.options:
        raise InvalidOption(
            f"{address.shown} has a user; say how it logs in: sasl=" + " or sasl=".join(_MECHANISMS)
        )
    mechanism = choice(address.options["sasl"], name="sasl", among=_MECHANISMS)
    return {
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": address.user,
        "sasl.password": address.password or "",
        **files,
    }
