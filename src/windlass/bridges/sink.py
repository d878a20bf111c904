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

        - published_is_there: whole, with headers and key, where the URL says.
        - message_has_its_id: those who look for repeats find the same id in both.
        - publishes_where_it_is_told: `to` goes before the URL.
        - keys_keep_their_order: in one call and from one to the next.
        - calls_side_by_side: of several tasks; each returns when its own are taken.
        - nothing_is_published_of_nothing: no messages are no call.
        - unfit_message_is_refused_by_number: and only that.
        - missing_place_is_refused: without numbers.
        - outage_of_the_sink_is_unavailable: and it works again when the message broker does.
        - cancelled_publish_leaves_it_usable: for the next call.
        """
        ...

    @property
    def largest(self) -> int:
        """Bytes of a body that it takes at the most, as far as is known.

        - largest_is_taken: a body of that size, with a key and headers.
        """
        ...

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of its settings.

        - warnings_of_a_sink_are_sentences: each says what to change, without a secret.
        """
        ...

    async def close(self) -> None:
        """Let go of everything; what was not acknowledged may be lost."""
        ...
