"""Messages of NATS as bridges have them."""

from nats.aio.msg import Msg

from windlass.bridges.message import Message
from windlass.bridges.nats.pulling import StreamPosition

ID = "Nats-Msg-Id"


def message_of(
    said: Msg, place: StreamPosition, *, stream: str, after: str, otherwise: str | None = None
) -> Message:
    """A message. `otherwise`: its id, if its producer gave it none."""
    headers = said.headers or {}
    return Message(
        body=said.data,
        headers=headers,
        subject=said.subject,
        id=headers.get(ID) or otherwise,
        at=place.time // 1_000,
        place=f"{stream}/{place.sequence}",
        after=after,
    )
