"""Offsets as the store keeps them: `1042@5` is behind a message that was written under leader epoch 5.

By the epoch it is seen that the log no longer has what was read: after a truncation another message stands
there. Where no message was read, there is none: `1042`.
"""

from typing import NamedTuple

from windlass.errors import SourceReplaced


class Position(NamedTuple):
    """Where to read on."""

    offset: int
    epoch: int | None = None

    def __str__(self) -> str:
        """As the store keeps it."""
        return str(self.offset) if self.epoch is None else f"{self.offset}@{self.epoch}"


def position_of(text: str) -> Position:
    """What the store has kept; `SourceReplaced`: it is none of Kafka's."""
    offset, _, epoch = text.partition("@")
    if not offset.isdecimal() or not (epoch.isdecimal() or epoch == ""):
        raise SourceReplaced(f'"{text[:50]}" is no offset of Kafka: say where to go on')
    return Position(int(offset), int(epoch) if epoch else None)
