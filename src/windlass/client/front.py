"""The front door as producers see it: groups of jobs go to a message broker, and an intake takes them.

Nothing of the store is asked, so a producer does not notice when it is away. What the store would have said,
that a key was taken or a queue is not declared, comes to light when the group is taken.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from windlass.bridges.addresses import Address
from windlass.bridges.front import front_message, why_not
from windlass.bridges.message import Outgoing
from windlass.bridges.sink import Sink
from windlass.client.resend import Resend
from windlass.core.group import too_large
from windlass.core.job import NewJob, Receipt, Refusal, Status
from windlass.errors import BridgeRefused, BridgeUnavailable

Open = Callable[[Address], Awaitable[Sink]]


class FrontDoor:
    """The sink of one process. All of it happens on one event loop."""

    def __init__(self, address: Address, namespace: str, window: float, open_sink: Open) -> None:
        """`window` is for how many seconds, from the first try, a group may be sent again."""
        self._address = address
        self._namespace = namespace
        self._window = window
        self._open_sink = open_sink
        self._sink: Sink | None = None
        self._opening = asyncio.Lock()

    async def send(self, groups: Sequence[Sequence[NewJob]]) -> list[list[Receipt]]:
        """Send groups, each as one message. `BridgeUnavailable`: the message broker may have taken them, and
        may not have.
        """
        receipts: list[list[Receipt] | None] = [_refused_at_once(group) for group in groups]
        resend = Resend(self._window)
        while missing := [number for number, known in enumerate(receipts) if known is None]:
            try:
                async with asyncio.timeout(resend.left):
                    sink = await self._opened()
                    sent = await _send(sink, [self._message(groups[number]) for number in missing])
            except (BridgeUnavailable, TimeoutError) as error:
                pause = resend.pause()
                if pause is None:
                    raise _away(self._address, error) from error
                await asyncio.sleep(pause)
                continue
            for number, why in zip(missing, sent, strict=True):
                group = groups[number]
                receipts[number] = _accepted(group) if why is None else _refused(group, why)
        return [known for known in receipts if known is not None]

    def _message(self, group: Sequence[NewJob]) -> Outgoing:
        return front_message(self._namespace, group)

    async def _opened(self) -> Sink:
        async with self._opening:
            if self._sink is None:
                self._sink = await self._open_sink(self._address)
            return self._sink

    async def close(self) -> None:
        """Let go of the message broker; callers that still send get an error."""
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()


async def _send(sink: Sink, messages: Sequence[Outgoing]) -> list[str | None]:
    """Publish messages: for each None, or why it will never be taken."""
    found: dict[int, str] = {
        number: f"the group makes a message of {len(message.body or b''):,} bytes, and the front door takes "
        f"{sink.largest:,}: send less at once"
        for number, message in enumerate(messages)
        if len(message.body or b"") > sink.largest
    }
    while left := [number for number in range(len(messages)) if number not in found]:
        try:
            await sink.publish([messages[number] for number in left])
        except BridgeRefused as error:
            if not error.numbers:
                raise
            found.update({left[number]: str(error) for number in error.numbers})
        else:
            break
    return [found.get(number) for number in range(len(messages))]


def _refused_at_once(group: Sequence[NewJob]) -> list[Receipt] | None:
    if not group:
        return []
    for _, why in too_large(group).values():
        return _refused(group, why)
    why = why_not(group)
    return None if why is None else _refused(group, why, Refusal.UNKNOWN_PARENT)


def _refused(group: Sequence[NewJob], why: str, refusal: Refusal = Refusal.GROUP_TOO_LARGE) -> list[Receipt]:
    return [Receipt(Status.REFUSED, job.id, refusal=refusal, why=why) for job in group]


def _accepted(group: Sequence[NewJob]) -> list[Receipt]:
    return [Receipt(Status.ACCEPTED, job.id) for job in group]


def _away(address: Address, error: Exception) -> BridgeUnavailable:
    why = str(error) or "it did not answer in time"
    return BridgeUnavailable(f"the front door {address.shown} did not take the jobs: {why}")
