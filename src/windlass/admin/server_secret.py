"""The secret that the servers of a namespace share: what one seals (a lease, a login) each can check."""

import hashlib
import hmac
import secrets

from windlass.broker.contract import Broker
from windlass.core.settings import Kind, Subject
from windlass.errors import StoreError

NAME = "server"
BYTES = 32
_TRIES = 5


async def server_secret(broker: Broker) -> bytes:
    """The secret of a namespace. The first server that asks makes it."""
    for _ in range(_TRIES):
        for document in await broker.documents(Kind.SECRET, limit=1_000):
            if document.subject.name == NAME and isinstance(document.override, bytes):
                return document.override
        await broker.override(Subject(Kind.SECRET, NAME), secrets.token_bytes(BYTES), 0)
    raise StoreError("the servers' secret can be neither read nor kept; try again")


def derived(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose: what is sealed for one is worth nothing for another."""
    return hmac.digest(secret, purpose.encode(), hashlib.sha256)
