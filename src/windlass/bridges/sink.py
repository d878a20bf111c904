"""What an adapter must do that messages are published through: for relays, and for front doors."""

from collections.abc import Sequence
from typing import Protocol

from windlass.bridges.message import Outgoing


class Sink(Protocol):
    """Publishes messages. Errors, and cancelling, as for sources. Several tasks may call at a time."""

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send messages, and return when the message broker has taken all of them: as safe as its settings
        make it (all replicas in sync, publisher confirms). Those of one key keep their order.

        `BridgeUnavailable`: some may have been taken, and some not; who calls sends all of them again, and
        their ids tell repeats. Cancelling leaves it just as open. `BridgeRefused` with `numbers`: it will
        not take these for what they are, whatever anybody sets (too large, a name that cannot be one); the
        others were taken or may be sent again. A relay leaves those out and goes on. `BridgeRefused` without
        `numbers`: the message broker has to be changed first (no such exchange, topic or stream, not
        allowed, nothing bound to take it). A relay waits for that, and nothing is left out.
        """
        ...

    @property
    def largest(self) -> int:
        """Bytes of a body that it takes at the most, as far as is known."""
        ...

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of its settings: each a sentence that says what to change."""
        ...

    async def close(self) -> None:
        """Let go of everything; what was not acknowledged may be lost."""
        ...
