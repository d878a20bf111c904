"""What JetStream says of streams and consumers, as far as a bridge needs it."""

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from windlass.errors import BridgeError, BridgeRefused, BridgeUnavailable

if TYPE_CHECKING:
    from windlass.bridges.nats.link import Link

NO_STREAM = 10059
NO_CONSUMER = 10014
NO_MESSAGE = 10037
TOO_LARGE = (10054, 10097)
"""Of a message, of its headers."""
_PASSES = (408, 429, 503, 504)
_PASSING = (10028, 10047, 10122, 10158)
"""No memory, no storage, the stream is full, the same message is being stored at this moment."""


class ApiError(Exception):
    """JetStream has answered with an error."""

    def __init__(self, code: int, number: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.number = number


class ApiErrorSaid(msgspec.Struct):
    """An error as it is written."""

    code: int = 0
    err_code: int = 0
    description: str = ""

    def raised(self) -> ApiError:
        """As what can be raised."""
        return ApiError(self.code, self.err_code, self.description)


class StreamConfig(msgspec.Struct):
    """How a stream is set up."""

    name: str
    subjects: list[str] = []
    retention: str = "limits"
    storage: str = "file"
    num_replicas: int = 1
    discard: str = "old"
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    duplicate_window: int = 0
    no_ack: bool = False
    allow_msg_ttl: bool = False


class StreamState(msgspec.Struct):
    """What is in a stream."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0

    @property
    def first(self) -> int:
        """The number of the oldest message that is kept, or of the next one."""
        return max(self.first_seq, 1)


class StreamInfo(msgspec.Struct):
    """A stream."""

    config: StreamConfig
    state: StreamState
    created: str

    @property
    def identity(self) -> str:
        """Another one when it was deleted and made anew."""
        return f"{self.config.name} {self.created}"


class ConsumerConfig(msgspec.Struct):
    """How a consumer is set up."""

    ack_policy: str = "none"
    ack_wait: int = 0
    max_deliver: int = -1
    max_ack_pending: int = 0
    deliver_subject: str = ""
    filter_subject: str = ""


class ConsumerInfo(msgspec.Struct):
    """A consumer."""

    name: str
    config: ConsumerConfig
    num_pending: int = 0
    num_ack_pending: int = 0


class Kept(msgspec.Struct):
    """A message of a stream, without its content."""

    seq: int
    time: str


class KeptMessage(msgspec.Struct):
    """The answer to the question for one."""

    message: Kept


class StreamNames(msgspec.Struct):
    """The streams that take a subject."""

    streams: list[str] | None = None


def refusal(shown: str, error: ApiError) -> BridgeError:
    """What an error means to those who asked."""
    text = f"{shown}: {error}"
    if error.code in _PASSES or error.number in _PASSING:
        return BridgeUnavailable(text)
    return BridgeRefused(text)


async def stream_of(link: "Link", stream: str) -> StreamInfo:
    """A stream as it is now. `BridgeRefused`: there is none of that name."""
    try:
        return await link.ask(f"STREAM.INFO.{stream}", StreamInfo)
    except ApiError as error:
        if error.number == NO_STREAM:
            raise BridgeRefused(f'{link.shown}: there is no stream "{stream}"') from None
        raise refusal(link.shown, error) from error


def nanoseconds(time: str) -> int:
    """A time as JetStream writes it (`2026-01-31T12:00:00.123456789Z`), since 1970."""
    whole, _, part = time.removesuffix("Z").partition(".")
    return int(datetime.fromisoformat(f"{whole}+00:00").timestamp()) * 10**9 + int(part.ljust(9, "0") or 0)
