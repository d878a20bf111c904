"""What operators are told of a queue's settings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

_SHORTEST_VISIBILITY: Final = 30
_FEWEST_RECEIVES: Final = 100
_SHORTEST_RETENTION: Final = 345_600
"""Four days, as SQS has it unless told otherwise."""
_DAY: Final = 86_400


class _Redrive(msgspec.Struct):
    maxReceiveCount: int | str = 0  # noqa: N815 - SQS's name


def of_a_source(attributes: Mapping[str, str], visibility: int | None) -> Sequence[str]:
    """Of a queue that is read."""
    if not attributes:
        return ("its settings and how many messages wait cannot be seen: allow sqs:GetQueueAttributes",)
    return [*_visible(attributes, visibility), *_redriven(attributes), *_kept(attributes)]


def of_a_sink(attributes: Mapping[str, str], *, fifo: bool) -> Sequence[str]:
    """Of a queue that is sent to."""
    advice = [*_kept(attributes)] if attributes else []
    if not fifo:
        advice.append(
            "SQS does not tell repeats in a standard queue: readers have to, by the attribute windlass-id; "
            "or use a FIFO queue"
        )
    return advice


def _visible(attributes: Mapping[str, str], visibility: int | None) -> Iterator[str]:
    seconds = int(attributes.get("VisibilityTimeout", "30")) if visibility is None else visibility
    if seconds < _SHORTEST_VISIBILITY:
        yield (
            f"what is received is visible again after {seconds} s, and is taken twice for nothing when the "
            "store is slow: set its visibility timeout, or visibility= of the URL, to "
            f"{_SHORTEST_VISIBILITY} s"
        )


def _redriven(attributes: Mapping[str, str]) -> Iterator[str]:
    try:
        policy = msgspec.json.decode(attributes.get("RedrivePolicy", "{}"), type=_Redrive)
        most = int(policy.maxReceiveCount)
    except (msgspec.MsgspecError, ValueError):
        return
    if 0 < most < _FEWEST_RECEIVES:
        yield (
            f"SQS moves a message to the dead-letter queue when it was received {most} times, and each try "
            f"while the store is away counts: set maxReceiveCount to {_FEWEST_RECEIVES} or more. What nobody "
            "can read does not need it: that becomes a dead letter of Windlass"
        )


def _kept(attributes: Mapping[str, str]) -> Iterator[str]:
    seconds = int(attributes.get("MessageRetentionPeriod", str(_SHORTEST_RETENTION)))
    if seconds < _SHORTEST_RETENTION:
        yield (
            f"messages are dropped after {seconds / _DAY:.2g} days, read or not: set its retention period to "
            "four days or more"
        )
