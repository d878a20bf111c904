"""The way to the store: messages that are late, lost or doubled, a store that is away, links that are cut.

A request travels apart from its sender: it arrives although the sender was frozen or killed meanwhile, as a
packet does. Every verb is repeatable by design (ids, numbers of asks, fences), so a doubled request is fair.

Fair as long as the store is the one that it was sent to. A copy that its sender does not wait for stands for
a request that was given up and still lies in the buffer of a connection; when a replica takes over, that
connection and its buffers are gone, and the replica hears only who asks now. (Otherwise a replica that has
forgotten asks would be asked them once more by nobody, and a session would hold what it never hears of: only
a number per answer, kept by every store and repeated in the next ask, could tell the two apart.)
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from windlass.broker.memory import MemoryBroker
from windlass.errors import StoreUnavailable, WindlassError
from windlass.verify import history
from windlass.verify.history import Journal
from windlass.verify.simulator.loop import SimLoop, SimProcess
from windlass.verify.simulator.recorded import Refused

T = TypeVar("T")

UNFENCED = frozenset({"pause", "resume", "cancel", "replay", "discard", "prune"})
"""An operator's word that comes twice, and late, is another word: a pause after its resume."""
MOST_STEPS = 12_000
"""A run takes a few hundred."""


class Lost(StoreUnavailable):
    """No answer came in time."""


class NotHeard(StoreUnavailable, Refused):
    """The store cannot be reached: it has not heard the call."""


class Weather(msgspec.Struct):
    """What becomes of messages on one link."""

    latency: tuple[float, float] = (0.0005, 0.003)
    loss: float = 0.0
    """Of a request, and again of its reply."""
    twice: float = 0.0
    cut: bool = False


class Network:
    """All links, and the store at their end."""

    def __init__(self, loop: SimLoop, chance: random.Random, store: MemoryBroker, journal: Journal) -> None:
        self.loop = loop
        self.chance = chance
        self.store = store
        self.journal = journal
        self.era = 0
        """How often another server has taken over."""
        self.down = False
        """The store is not there: calls are refused at once."""
        self.hung = False
        """The store is there and answers nothing: calls are not heard, and time out."""
        self.weather = Weather()
        self.links: dict[str, Weather] = {}
        """Of single processes, where it is not the common one."""
        self.timeout = 1.5
        self.steps = 0
        self.over = False
        """The run has ended: nobody hears anybody any more."""

    @property
    def exhausted(self) -> bool:
        """Whether the run goes round in circles: then the store answers no more."""
        return self.steps > MOST_STEPS

    def link(self, process: SimProcess) -> Weather:
        """What becomes of the messages of a process."""
        return self.links.get(process.name, self.weather)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Do something in the network's name."""
        self.loop.call_later(seconds, call, context=self.loop.outside)

    def execute(self, verb: str, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """A request has arrived: one atomic step of the store."""
        self.steps += 1
        step = getattr(self.store, verb)(*args, **more)
        try:
            step.send(None)
        except StopIteration as answer:
            return answer.value
        raise RuntimeError(f"{verb} waits, and a step of the store does not")

    def execute_again(self, verb: str, args: tuple[Any, ...], more: dict[str, Any]) -> None:
        """A copy has arrived that nobody waits for. A pass of a sweep moves the liveness clock and may give
        sessions up, in any call of it: the history has to tell, and its caller cannot.
        """
        with contextlib.suppress(WindlassError):
            if verb != "sweep":
                self.execute(verb, args, more)
                return
            call = self.journal.call()
            self.journal.write(history.Sweep(call=call))
            swept = self.execute(verb, args, more)
            self.journal.write(history.Swept(call=call, reaped=swept.reaped))


class Wire:
    """The store as one process sees it. Verbs that wait (`wait`, `watch`) are not for here, except `wait`."""

    def __init__(self, network: Network, process: SimProcess) -> None:
        self._network = network
        self._process = process

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """Any verb that is one step of the store."""
        if verb.startswith("_"):
            raise AttributeError(verb)

        async def call(*args: Any, **more: Any) -> Any:
            return await self._sent(verb, args, more)

        return call

    @property
    def capabilities(self) -> Any:
        """Those of the store."""
        return self._network.store.capabilities

    @property
    def blocking(self) -> None:
        """Nothing blocks here."""
        return

    async def close(self) -> None:
        """Nothing to close."""

    async def wait(self, queues: Any, timeout: float) -> None:
        """Wait for a wake, on a link that may be cut."""
        if self._network.down:
            raise NotHeard("the store is away")
        if self._network.hung or self._network.link(self._process).cut:
            await asyncio.sleep(self._network.timeout)
            raise Lost("no answer in time")
        await self._network.store.wait(queues, timeout)

    async def _sent(  # noqa: C901 - one message and all that can befall it
        self, verb: str, args: tuple[Any, ...], more: dict[str, Any]
    ) -> Any:
        network, chance = self._network, self._network.chance
        weather, era = network.link(self._process), network.era
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._process.dead or network.over:
            return await answer
        there, back = chance.uniform(*weather.latency), chance.uniform(*weather.latency)
        lost, unanswered = chance.random() < weather.loss, chance.random() < weather.loss

        def silence() -> None:
            _fail(answer, Lost("no answer in time"))

        def arrive() -> None:
            if network.down or network.exhausted:
                network.later(back, lambda: _fail(answer, NotHeard("the store is away")))
                return
            if network.hung:
                network.later(network.timeout, silence)
                return
            try:
                value = network.execute(verb, args, more)
            except WindlassError as error:
                kept = error
                network.later(back, lambda: _fail(answer, kept))
                return
            if unanswered or network.link(self._process).cut:
                network.later(network.timeout, silence)
            else:
                network.later(back, lambda: _set(answer, value))

        def arrive_again() -> None:
            if not (network.down or network.hung) and network.era == era:
                network.execute_again(verb, args, more)

        if lost or weather.cut:
            network.later(network.timeout, silence)
        else:
            network.later(there, arrive)
            if chance.random() < weather.twice and verb not in UNFENCED:
                network.later(there + chance.expovariate(1.0), arrive_again)
        return await answer


def _set(answer: "asyncio.Future[Any]", value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
