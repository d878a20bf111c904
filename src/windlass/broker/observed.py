"""The one seam where a broker is watched: spans, metrics and logs wrap its verbs here, and brokers contain
none.

    broker = Observed(broker, [log_slow_verbs, count_outcomes])

An observer is called after each verb with what was asked and what was answered: receipts, leases, verdicts
and the transitions that sweep and end_session return are all that metrics need. It is called on the loop or
the thread that called the verb, so it must be quick and must not wait. It gets the arguments whole; what it
keeps of them is its duty (payloads stay out of logs). One that raises is reported once, left out, and harms
nobody.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windlass.broker.contract import BlockingProduce, Broker, Capabilities, Consume, Produce, Transact
from windlass.broker.intake import Intake
from windlass.broker.management import Configure, Operate, Plan, Read
from windlass.core.job import NewJob, Receipt

_log = logging.getLogger("windlass.broker")

VERBS = frozenset(
    name
    for part in (Produce, Consume, Intake, Plan, Operate, Configure, Read)
    for name in vars(part)
    if not name.startswith("_")
)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a verb."""

    verb: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Any = None
    error: BaseException | None = None
    """Set instead of the answer. A cancelled call counts as an error."""
    seconds: float

    def __repr__(self) -> str:
        """Without what was asked and answered: it may hold payloads."""
        how = "answered" if self.error is None else type(self.error).__name__
        return f"<{self.verb}: {how} in {self.seconds * 1_000:.3f} ms>"


Observer = Callable[[Observation], None]


class Observed:
    """A broker with observers around each verb. Use `observe` to get one that is typed as a broker."""

    def __init__(self, broker: Broker, observers: Sequence[Observer]) -> None:
        self._broker = broker
        self._observers = tuple(observers)
        self._leaving = threading.Lock()
        for verb in VERBS:
            setattr(self, verb, self._wrapped(verb, getattr(broker, verb)))

    @property
    def capabilities(self) -> Capabilities:
        """Those of the broker inside."""
        return self._broker.capabilities

    @property
    def blocking(self) -> BlockingProduce | None:
        """That of the broker inside, observed."""
        inside = self._broker.blocking
        return None if inside is None else _ObservedBlocking(inside, self._tell)

    @property
    def transact(self) -> Transact | None:
        """That of the broker inside, not observed: it runs on connections of others."""
        return self._broker.transact

    async def warnings(self) -> Sequence[str]:
        """Those of the broker inside."""
        return await self._broker.warnings()

    async def close(self) -> None:
        """Close the broker inside."""
        await self._broker.close()

    def _wrapped(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def observed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                answer = await call(*args, **kwargs)
            except BaseException as error:
                self._tell(verb, started, args, kwargs, error=error)
                raise
            self._tell(verb, started, args, kwargs, answer=answer)
            return answer

        return observed

    def _tell(
        self,
        verb: str,
        started: float,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        answer: Any = None,
        error: BaseException | None = None,
    ) -> None:
        seconds = time.perf_counter() - started
        seen = Observation(verb=verb, args=args, kwargs=kwargs, answer=answer, error=error, seconds=seconds)
        for observer in self._observers:
            try:
                observer(seen)
            except Exception as failure:  # noqa: BLE001 - watching must not change what happens
                self._leave_out(observer, failure)

    def _leave_out(self, observer: Observer, failure: Exception) -> None:
        with self._leaving:
            if observer not in self._observers:
                return  # another thread met the same
            self._observers = tuple(other for other in self._observers if other is not observer)
        # Not the message: it may quote what the observer saw.
        kind, name = type(failure).__name__, getattr(observer, "__qualname__", type(observer).__qualname__)
        _log.error("an observer of the broker failed and is left out from now on: %s in %s", kind, name)


class _ObservedBlocking:
    def __init__(self, inside: BlockingProduce, tell: Callable[..., None]) -> None:
        self._inside = inside
        self._tell = tell

    def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        started = time.perf_counter()
        try:
            answer = self._inside.enqueue(groups)
        except BaseException as error:
            self._tell("enqueue", started, (groups,), {}, error=error)
            raise
        self._tell("enqueue", started, (groups,), {}, answer=answer)
        return answer


def observe(broker: Broker, observers: Sequence[Observer]) -> Broker:
    """The broker with observers around each verb; the broker itself if there are none."""
    observed: Any = Observed(broker, observers) if observers else broker
    return observed
