"""What an adapter must do that messages are read from.

There are two kinds. A **log** (a partition of Kafka, a stream of JetStream) keeps its messages. How far it
was taken is an offset in the store, which moves together with the jobs (`take`). A **queue** (of RabbitMQ,
SQS, a work queue of JetStream) forgets what was acknowledged, which happens after its jobs were accepted.

Every method raises `BridgeUnavailable` if the message broker does not answer within its time, and works again
when that does; the adapter connects anew by itself. `BridgeRefused`: it answers, and trying again does not
help (no such topic, wrong password). Cancelling a call leaves the adapter usable. One task calls at a time.

- outage_is_unavailable: reading raises `BridgeUnavailable`, and goes on where it was after the outage.
- unknown_is_refused: `BridgeRefused` of what is not there, which the text names.
- warnings_are_sentences: each says what to change, without a secret.

Where an obligation has a name, `windlass.conformance.bridges` has a test of that name.
"""

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from windlass.bridges.message import Message


class Log(Protocol):
    """One log: a partition."""

    @property
    def partition(self) -> str:
        """Its name among those of its source: `3`. Not empty."""
        ...

    @property
    def identity(self) -> str:
        """Which log of that name it is. Known once opened.

        - identity_is_of_one_log: the same for every process and at any time; another one after the log was
          deleted and made anew.
        """
        ...

    async def begin(self, *, at_end: bool) -> str:
        """The offset of the oldest message that is kept, or the one behind the newest.

        - begin_is_the_oldest_kept: also after others were dropped, and of a log without messages.
        - begin_at_the_end_leaves_out_what_is_there: and what comes later is read from it.
        """
        ...

    async def read(self, offset: str, limit: int, timeout: float) -> Sequence[Message]:
        """Up to `limit` messages from an offset on, in order; none when nothing has come within `timeout`
        seconds. Each says the offset behind it in `after`. What a reader must not see (aborted transactions,
        control records) is left out, and passed over by the `after` of what follows.

        `SourceReplaced`: the log is another one than `identity` says, or no longer has this offset (it was
        truncated, or retention has passed it). Nothing is skipped in silence.

        - read_keeps_the_order: each message once, from one `after` to the next.
        - read_is_repeatable: the same offset reads the same messages again, also of a log opened anew.
        - read_is_bounded: by `limit`, and by `timeout` when there is nothing.
        - message_is_read_whole: body, headers, key and place, as they were sent.
        - another_log_is_not_read: SourceReplaced once it was deleted and made anew, also when the new one
          already has more messages than were read of the old one, and also in a log that was open.
        - what_is_gone_is_not_skipped: SourceReplaced when messages behind the offset were dropped unread.
        - the_end_is_not_gone: the offset behind the newest message can be read when all before it is dropped.
        - cancelled_read_loses_nothing: the next one reads what it would have read.
        """
        ...

    async def passed(self, offset: str) -> str:
        """The offset to which a reader may move although nothing was read: behind what it must not see. The
        same offset, if there is none or nobody knows. Without it, dropping what nobody must see would look as
        if messages were lost.

        - passed_leaves_out_nothing: from there on the same messages are read as from the offset itself.
        """
        ...

    async def lag(self, offset: str) -> int | None:
        """How many messages are behind an offset; None: the message broker cannot say.

        - lag_counts_what_is_behind: what was not read yet, and nothing else.
        """
        ...

    async def commit(self, offset: str) -> None:
        """Tell the message broker how far the source was read, so that its own tools can show it. It may do
        nothing.

        - nothing_depends_on_commit: reading goes on by the offset alone, whatever was told.
        """
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class LogSource(Protocol):
    """Logs that are taken together: a topic with its partitions, or a stream. Operators open it as well,
    beside the process that reads it, to ask for its warnings and its offsets.
    """

    async def partitions(self) -> Sequence[str]:
        """The names of its logs as they are now; asked now and then.

        - new_partitions_are_found: when there are more, by a source that was open.
        """
        ...

    async def open(self, partition: str) -> Log:
        """Open one for reading. Others of the source are read at the same time, by other tasks.

        - logs_are_read_side_by_side: a log without messages does not hold up another one.
        """
        ...

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of its settings: each a sentence that says what to change."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class QueueSource(Protocol):
    """A queue whose messages are handed out, and forgotten when they are acknowledged. To open it takes no
    message: operators do so to ask for its warnings.
    """

    @property
    def names_messages(self) -> bool:
        """Whether every message has an id that a repeat has, too, as far as this reader has seen. If not, an
        intake may take one twice.

        - message_keeps_its_id: also when it comes again.
        """
        ...

    async def receive(self, limit: int, timeout: float) -> Sequence[Message]:
        """Up to `limit` messages; none when nothing has come within `timeout` seconds.

        - receive_is_bounded: by `limit`, and by `timeout` when there is nothing.
        - received_message_is_whole: body, headers and id, as they were sent.
        - receive_keeps_the_order: where the message broker does.
        - readers_share_a_queue: no message is with two of them, and none is left out.
        - cancelled_receive_loses_nothing: what it would have given comes with another call.
        - outage_of_a_queue_is_unavailable: it goes on after the outage, with what was not acknowledged.
        - unknown_queue_is_refused: `BridgeRefused` of what is not there, which the text names.
        """
        ...

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """Let the message broker forget them. They are the whole of what `receive` gave, in its order, or
        a part. Messages that it has taken back are skipped: it sends them again, and the store knows
        their ids.

        - acknowledged_never_comes_again: to no reader, also after an outage.
        - acknowledged_in_parts: the other parts are still held, and come again when they are given back.
        - late_acknowledge_is_passed_over: of what was given back, or lost in an outage.
        """
        ...

    async def give_back(self, messages: Sequence[Message]) -> None:
        """Let others have them at once, or this one later: the store has not accepted them. This happens
        again and again while the store is away, so it must not use up tries that a message broker counts.

        - given_back_comes_again: to who receives next.
        """
        ...

    async def lag(self) -> int | None:
        """How many messages wait; None: the message broker cannot say.

        - lag_is_what_waits: acknowledged messages are not counted.
        """
        ...

    async def warnings(self) -> Sequence[str]:
        """As those of a `LogSource`.

        - warnings_of_a_queue_are_sentences: each says what to change, without a secret.
        - warnings_take_no_message: who only asks for them holds up nobody.
        """
        ...

    async def close(self) -> None:
        """Let go of everything.

        - close_gives_back: what was received and not acknowledged comes again.
        """
        ...


def is_queue(source: LogSource | QueueSource) -> TypeGuard[QueueSource]:
    """Whether a source is a queue, and not a log."""
    return hasattr(source, "receive")
