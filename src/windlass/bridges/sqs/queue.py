"""A queue of SQS. What is received is held for milliseconds: its visibility timeout is for outages alone.

A receive that was cancelled is not given up: SQS may have handed out messages to it, which nobody else would
see until they are visible again. What it brings is for who asks next.
"""

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from windlass.bridges.message import Message
from windlass.bridges.sqs.advice import of_a_source
from windlass.bridges.sqs.link import PARALLEL, Link, all_of
from windlass.bridges.sqs.messages import message_of
from windlass.errors import BridgeError, BridgeUnavailable
from windlass.patience import cancelled

BATCH: Final = 10
"""What SQS hands out, or takes back, in one call."""
_LONGEST_POLL: Final = 20
_GONE: Final = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight")
"""It is visible again, or forgotten already: there is nothing to acknowledge."""


class Queue:
    """See `windlass.bridges.source`."""

    names_messages = True

    def __init__(self, link: Link, name: str, url: str, visibility: int | None) -> None:
        self._link = link
        self._name = name
        self._url = url
        self._visibility = visibility
        self._is_fifo = name.endswith(".fifo")
        self._arrived: list[Message] = []
        self._receiving: set[asyncio.Task[int]] = set()
        self._held: dict[str, None] = {}
        self._calls = asyncio.Semaphore(PARALLEL)

    async def receive(self, limit: int, timeout: float) -> Sequence[Message]:
        """See `windlass.bridges.source`. First one call that waits, then as many as bring enough."""
        if not self._arrived:
            if not self._receiving:
                self._begin(min(limit, BATCH), timeout)
            await self._some()
        while (room := limit - len(self._arrived)) > 0 and self._arrived:
            calls = min(PARALLEL, -(-room // BATCH))
            before = len(self._arrived)
            for _ in range(calls - len(self._receiving)):
                self._begin(min(room, BATCH), 0)
            while self._receiving:
                await self._some()
            if len(self._arrived) - before < calls * BATCH // 2:
                break
        found, self._arrived = self._arrived[:limit], self._arrived[limit:]
        return found

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """See `windlass.bridges.source`."""
        await self._tell("delete_message_batch", [message.after for message in messages])

    async def give_back(self, messages: Sequence[Message]) -> None:
        """See `windlass.bridges.source`."""
        await self._make_visible([message.after for message in messages])

    async def lag(self) -> int | None:
        """See `windlass.bridges.source`. SQS says it about right."""
        waiting = (await self._link.attributes(self._url)).get("ApproximateNumberOfMessages")
        return None if waiting is None else int(waiting)

    async def warnings(self) -> Sequence[str]:
        """See `windlass.bridges.source`."""
        return of_a_source(await self._link.attributes(self._url), self._visibility)

    async def close(self) -> None:
        """See `windlass.bridges.source`. What is held is visible at once, if SQS hears it."""
        try:
            await cancelled(self._receiving)
            if self._held:
                await self._make_visible(list(self._held))
        except BridgeError:
            self._held.clear()  # it is visible again after its timeout
        finally:
            await self._link.close()

    def _begin(self, count: int, timeout: float) -> None:
        self._receiving.add(asyncio.create_task(self._receive(count, timeout)))

    async def _some(self) -> None:
        """Wait for one call at least. Its messages have arrived, even if nobody waits for them any more."""
        done, _ = await asyncio.wait(self._receiving, return_when=asyncio.FIRST_COMPLETED)
        self._receiving -= done
        errors = [error for call in done if (error := call.exception()) is not None]
        if errors and not self._arrived:
            raise errors[0]

    async def _receive(self, count: int, timeout: float) -> int:
        asked: dict[str, Any] = {
            "QueueUrl": self._url,
            "MaxNumberOfMessages": count,
            "WaitTimeSeconds": min(round(timeout), _LONGEST_POLL),
            "MessageAttributeNames": ["All"],
            "MessageSystemAttributeNames": ["All"],
        }
        if self._visibility is not None:
            asked["VisibilityTimeout"] = self._visibility
        if self._is_fifo:
            # The client may ask twice when an answer is lost: SQS answers the same then.
            asked["ReceiveRequestAttemptId"] = uuid.uuid4().hex
        told = await self._link.call("receive_message", **asked)
        messages = [message_of(each, self._name) for each in told.get("Messages", ())]
        self._held.update((message.after, None) for message in messages)
        self._arrived += messages
        return len(messages)

    async def _make_visible(self, handles: Sequence[str]) -> None:
        await self._tell("change_message_visibility_batch", handles, {"VisibilityTimeout": 0})

    async def _tell(self, verb: str, handles: Sequence[str], more: Mapping[str, Any] | None = None) -> None:
        """Say a word about messages, ten at a time, and several times at a time."""
        await all_of([self._tell_some(verb, some, more or {}) for some in _pieces(handles)])
        for handle in handles:
            self._held.pop(handle, None)

    async def _tell_some(self, verb: str, handles: Sequence[str], more: Mapping[str, Any]) -> None:
        entries = [
            {"Id": str(number), "ReceiptHandle": handle, **more} for number, handle in enumerate(handles)
        ]
        async with self._calls:
            told = await self._link.call(verb, QueueUrl=self._url, Entries=entries)
        failed = [each for each in told.get("Failed", ()) if not each["Code"].endswith(_GONE)]
        if failed:
            raise BridgeUnavailable(f"{self._link.shown}: {failed[0]['Code']}: {failed[0].get('Message')}")


def _pieces(handles: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(handles), BATCH):
        yield handles[first : first + BATCH]
