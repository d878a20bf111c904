"""Hands records to librdkafka's producer, and waits until each is acknowledged or has failed.

The producer is idempotent: what it sends again by itself is kept once, and in order.
"""

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from windlass.bridges.kafka.failures import as_bridge_error, error_in
from windlass.errors import BridgeError, BridgeUnavailable
from windlass.forks import CONNECTING

_UNFIT: Final = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD))
"""The message itself cannot be taken."""
_PAUSE: Final = 0.01
"""Seconds between two tries while the producer's own queue is full."""
_TICK: Final = 0.2


class Deliverer:
    """A producer, and the thread that its answers come by."""

    def __init__(self, settings: Mapping[str, Any], shown: str, within: float) -> None:
        self._shown = shown
        self._within = within
        self._settings = {
            **settings,
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": max(1, int(within * 1_000)),
            "request.timeout.ms": max(1, min(10_000, int(within * 1_000))),
            "linger.ms": 1,
            # Java's clients and librdkafka's put a key into the same partition then.
            "partitioner": "murmur2_random",
            # The broker says what is too large.
            "message.max.bytes": 1_000_000_000,
            "topic.metadata.propagation.max.ms": 3_000,
        }
        self._producer: Any = None
        self._complaint = ""
        self._is_stopping = False
        self._threads: list[threading.Thread] = []

    async def deliver(self, records: Sequence[Mapping[str, Any]]) -> list[int]:
        """Wait until Kafka has acknowledged all records. Returns the numbers of records that cannot be
        accepted. Raises `BridgeError` if others were not acknowledged.
        """
        errors = await self._sent(records)
        # A batch of several may be too large where each of them is not.
        again = [number for number, error in errors.items() if error.code() in _UNFIT]
        unfit: list[int] = []
        for number in again:
            del errors[number]
            alone = await self._sent([records[number]])
            if any(error.code() in _UNFIT for error in alone.values()):
                unfit.append(number)
            elif alone:
                errors[number] = alone[0]
        if errors:
            raise self._as_bridge_error(next(iter(errors.values())))
        return unfit

    async def close(self) -> None:
        """What was not acknowledged is given up."""
        self._is_stopping = True
        self._producer = None
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    async def _sent(self, records: Sequence[Mapping[str, Any]]) -> dict[int, KafkaError]:
        """The errors of those that failed, by number."""
        if self._producer is not None:
            return await self._sent_by(self._producer, records)
        async with CONNECTING.entered():
            return await self._sent_by(self._running(), records)

    async def _sent_by(self, producer: Any, records: Sequence[Mapping[str, Any]]) -> dict[int, KafkaError]:
        answers = _Answers(len(records))
        for number, record in enumerate(records):
            await self._produced(producer, record, partial(answers.take, number), answers, number)
        await answers.all()
        if any(error.fatal() for error in answers.errors.values()) and self._producer is producer:
            self._producer = None  # it can go on no more; the next call has another one
        return answers.errors

    async def _produced(
        self, producer: Any, record: Mapping[str, Any], answered: Any, answers: "_Answers", number: int
    ) -> None:
        end = asyncio.get_running_loop().time() + self._within
        while True:
            try:
                producer.produce(**record, on_delivery=answered)
            except BufferError:
                if asyncio.get_running_loop().time() > end:
                    raise BridgeUnavailable(
                        f"{self._shown}: more messages wait than the producer holds; {self._complaint}"
                    ) from None
                await asyncio.sleep(_PAUSE)
            except KafkaException as raised:
                answers.take(number, error_in(raised), None)
                return
            else:
                return

    def _running(self) -> Any:
        if self._is_stopping:
            raise BridgeUnavailable(f"{self._shown} is closed")
        if self._producer is None:
            try:
                self._producer = Producer({**self._settings, "error_cb": self._complain})
            except KafkaException as raised:
                raise as_bridge_error(error_in(raised), self._shown) from None
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._threads.append(
                threading.Thread(
                    target=self._serve, args=(self._producer,), name="kafka producer", daemon=True
                )
            )
            self._threads[-1].start()
        return self._producer

    def _serve(self, producer: Any) -> None:
        """Answers come by here, also those of a producer that was replaced. It ends with this thread."""
        while self._producer is producer or (len(producer) and not self._is_stopping):
            producer.poll(_TICK)
        producer.purge()
        producer.close()

    def _complain(self, error: KafkaError) -> None:
        self._complaint = error.str()

    def _as_bridge_error(self, error: KafkaError) -> BridgeError:
        return as_bridge_error(error, self._shown, self._complaint)


class _Answers:
    """Of some records: they come by another thread."""

    def __init__(self, count: int) -> None:
        self.errors: dict[int, KafkaError] = {}
        self._left = count
        self._loop = asyncio.get_running_loop()
        self._complete = asyncio.Event()
        self._lock = threading.Lock()

    def take(self, number: int, error: KafkaError | None, _: object) -> None:
        """The answer to one of them."""
        with self._lock:
            if error is not None:
                self.errors[number] = error
            self._left -= 1
            complete = self._left == 0
        if complete:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._complete.set)

    async def all(self) -> None:
        """Wait for the last one: at the latest when the time of the last message is over."""
        await self._complete.wait()
