"""The one consumer of a source, and the thread that serves it: librdkafka's calls block.

One consumer for all partitions, since each has threads and connections of its own, and a topic may have a
thousand partitions. Partitions are assigned, never subscribed to: no group decides who reads what.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from windlass.bridges.kafka.failures import error_in
from windlass.bridges.kafka.inbox import Inbox
from windlass.bridges.kafka.offsets import Position
from windlass.bridges.kafka.records import message_of

_BATCH: Final = 500
"""Messages that are handed out before it looks whether somebody wants something else."""
_TICK: Final = 0.05
"""Seconds that it waits for a message at once; commands wait so long."""
_IDLE: Final = 0.5


class Pump:
    """Fetches what readers want, a little ahead of them."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        """`KafkaException`: the settings have no meaning."""
        self._topic = topic
        self._changed = threading.Condition()
        self._commands: list[Callable[[], None]] = []
        self._inboxes: dict[int, Inbox] = {}
        self._is_stopping = False
        self.has_complaints = False
        """Whether the client has lost a broker since this was last unset."""
        self._consumer = Consumer(
            {
                **settings,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                # It never chooses an offset: what is not there any more is an error.
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                # A partition that is read from elsewhere waits for the fetch that is under way.
                "fetch.wait.max.ms": 200,
                "queued.min.messages": 10_000,
                # It looks so often whether it may fetch more; once a second, unless told, is 10,000 messages.
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": 32_768,
                "error_cb": self._complain,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"kafka {topic}", daemon=True)
        self._thread.start()

    # --- for those who read ---------------------------------------------------------------------------------

    def begin(self, partition: int, position: Position) -> Inbox:
        """Fetch a partition from a position on. What was fetched of it before is forgotten."""
        inbox = Inbox(partition, position, self._changed)
        self._do(lambda: self._assign(inbox))
        return inbox

    def end(self, partition: int) -> None:
        """Fetch a partition no more."""
        self._do(lambda: self._unassign(partition))

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Tell the broker how far partitions were taken. It is not known whether it worked."""
        told = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]

        def commit() -> None:
            with contextlib.suppress(KafkaException):
                self._consumer.commit(offsets=told, asynchronous=True)

        self._do(commit)

    def stop(self) -> None:
        """End the thread, which closes the consumer; `join` waits for it."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def join(self) -> None:
        """Wait until the consumer is closed. It blocks."""
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether it does what it is told."""
        return self._thread.is_alive() and not self._is_stopping

    def _do(self, command: Callable[[], None]) -> None:
        with self._changed:
            self._commands.append(command)
            self._changed.notify()

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._obey()
                if self._may_fetch():
                    self._hand_out(self._fetch())
            self._obey()  # the last commits
        except KafkaException as raised:
            error = error_in(raised)
            self._end_all(lambda inbox: inbox.put_error(error))
        except Exception as failure:  # noqa: BLE001 - the reader must know
            self._end_all(lambda inbox, failure=failure: inbox.fail(failure))
        finally:
            self._is_stopping = True
            self._consumer.close()

    def _obey(self) -> None:
        with self._changed:
            commands, self._commands = self._commands, []
        for command in commands:
            command()

    def _assign(self, inbox: Inbox) -> None:
        """Fetch from its position on, or one message earlier: if that has another epoch now,
        the log was truncated. librdkafka looks only when a leader changes while it reads.
        """
        self._unassign(inbox.partition)
        with self._changed:
            self._inboxes[inbox.partition] = inbox
        first = inbox.position.offset - inbox.looks_back
        self._consumer.incremental_assign([TopicPartition(self._topic, inbox.partition, first)])

    def _unassign(self, partition: int) -> None:
        with self._changed:
            known = self._inboxes.pop(partition, None)
        if known is not None:
            place = [TopicPartition(self._topic, partition)]
            self._consumer.resume(place)  # else it would still be paused when it is assigned again
            self._consumer.incremental_unassign(place)

    def _may_fetch(self) -> bool:
        """Wait while a partition has enough. If another one has a reader who waits, the full one is left out
        instead: what librdkafka has fetched of it is then fetched once more.
        """
        with self._changed:
            full = [inbox for inbox in self._inboxes.values() if inbox.is_full and not inbox.is_paused]
            someone_waits = any(inbox.awaited for inbox in self._inboxes.values())
            if full and not someone_waits:
                self._changed.wait(_IDLE)
                return False
            roomy = [inbox for inbox in self._inboxes.values() if inbox.is_paused and inbox.has_room]
            for inbox in (*full, *roomy):
                inbox.is_paused = not inbox.is_paused
        if full:
            self._consumer.pause([TopicPartition(self._topic, inbox.partition) for inbox in full])
        if roomy:
            self._consumer.resume([TopicPartition(self._topic, inbox.partition) for inbox in roomy])
        return True

    def _fetch(self) -> list[Any]:
        """The next messages as soon as there is one: `consume` alone would wait until it has all it may."""
        first = self._consumer.poll(_TICK)
        return [] if first is None else [first, *self._consumer.consume(_BATCH, 0)]

    def _hand_out(self, records: list[Any]) -> None:
        # Only this thread changes which inboxes there are; readers wait while it has the lock.
        read = [
            (inbox, record, message_of(record, inbox.partition) if record.error() is None else None)
            for record in records
            if (inbox := self._inboxes.get(record.partition())) is not None
        ]
        again: set[Inbox] = set()
        with self._changed:
            for inbox, record, message in read:
                if record.offset() is not None and record.offset() < inbox.position.offset:
                    self._look_back(inbox, record, again)
                elif message is not None:
                    inbox.put(message)
                elif record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    inbox.put_end(record.offset())
                else:
                    inbox.put_error(record.error())
            for inbox in {inbox for inbox, _, _ in read}:
                inbox.tell()
        for inbox in again:
            self._assign(inbox)

    def _look_back(self, inbox: Inbox, record: Any, again: set[Inbox]) -> None:
        """At what stands before the first message: another one, the end of the log, or an error."""
        error: KafkaError | None = record.error()
        if error is None:
            if record.leader_epoch() not in (inbox.position.epoch, None, -1):
                inbox.put_error(KafkaError(KafkaError._LOG_TRUNCATION))  # noqa: SLF001
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            inbox.put_error(KafkaError(KafkaError._LOG_TRUNCATION))  # noqa: SLF001
        elif inbox.looks_back:
            again.add(inbox)  # it was dropped meanwhile, which does not matter
        else:
            inbox.put_error(error)
        inbox.looks_back = False

    def _complain(self, _: KafkaError) -> None:
        self.has_complaints = True

    def _end_all(self, put: Callable[[Inbox], None]) -> None:
        """Tell everybody who reads that nothing comes any more."""
        with self._changed:
            for inbox in self._inboxes.values():
                put(inbox)
                inbox.tell()
