"""An application, a worker's part by hand, and a clock to move."""

from collections.abc import Callable, Sequence
from typing import Any

from windlass import Windlass
from windlass.admin.service import Service
from windlass.admin.views import JobWhole
from windlass.broker.contract import Broker
from windlass.clock import ManualClock
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement

QUEUES = ("default", "mail")


class Bench:
    """An app, the service under test, and the verbs of a worker."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.app = Windlass(url, clock=self.clock)
        self.app.queue("mail", concurrency=2, rate="100/s")
        self._seq = 0

        @self.app.task
        def add(a: int, b: int = 0) -> int:
            return a + b

        @self.app.task(queue="mail")
        def send(to: str) -> None: ...

        self.add, self.send = add, send

    def run(self, work: Callable[["Bench", Broker], Any]) -> Any:
        async def go() -> Any:
            return await work(self, await self.app.connection.broker())

        return self.app.connection.run(go())

    def service(self, work: Callable[[Service], Any]) -> Any:
        return self.run(lambda _, broker: work(Service(self.app, broker)))

    def shown(self, job: str, **how: bool) -> JobWhole:
        async def show(service: Service) -> JobWhole:
            return service.jobs.shown(await service.jobs.one(job), **how)

        return self.service(show)

    def open(self, *queues: str, **info: Any) -> None:
        opening = SessionInfo(queues=queues or QUEUES, slots=4, **info)
        self.run(lambda _, broker: broker.beat([Beat(session="s", open=opening)]))

    def take(self, count: int = 1, *queues: str) -> Sequence[Lease]:
        self.open()
        self._seq += 1
        ask = Ask(session="s", seq=self._seq, queues=queues or QUEUES, slots=count, limit=count)
        return self.run(lambda _, broker: broker.claim(ask)).leases

    def settle(self, leases: Sequence[Lease], outcome: Outcome, **more: Any) -> None:
        more.setdefault("runtime", 1)
        items = [Settlement(job=lease.job, fence=lease.fence, outcome=outcome, **more) for lease in leases]
        self.run(lambda _, broker: broker.settle(items))

    def die(self, count: int = 1, kind: str = "ValueError", message: str = "no good") -> None:
        self.settle(self.take(count), Outcome.DEAD, error=Error(type=kind, message=message))


async def gathered(rows: Any) -> list[Any]:
    return [row async for row in rows]
