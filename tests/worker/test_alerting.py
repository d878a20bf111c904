"""Looking at alerts: said once by the whole fleet, and again when it is over."""

import asyncio
import logging

import pytest

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.core.operate import Target
from windlass.worker.alerting import look, look_and_tell


def test_of_many_lookers_one_says_it(caplog: pytest.LogCaptureFixture) -> None:
    app = Windlass("memory://")
    app.alert("full", queue="default", depth=2)

    @app.task
    def work() -> None: ...

    async def main() -> None:
        broker: Broker = await app.broker()
        await look_and_tell(broker)
        jobs = await app.aenqueue_many(work.call() for _ in range(3))
        await asyncio.gather(*(look_and_tell(broker) for _ in range(5)))
        (seen,) = await look(broker)
        assert (seen.name, seen.state.raised, seen.changed) == ("full", True, False)
        await broker.cancel([Target(job.id) for job in jobs[:2]])
        await asyncio.gather(*(look_and_tell(broker) for _ in range(5)))
        await app.aclose()

    with caplog.at_level(logging.INFO, "windlass.worker"):
        asyncio.run(main())
    assert [record.message for record in caplog.records] == [
        'alert "full" is raised: 3 ready jobs (over 2)',
        'alert "full" is cleared',
    ]


def test_redeclaring_keeps_how_it_stands() -> None:
    app = Windlass("memory://")
    app.alert("full", depth=0)

    @app.task
    def work() -> None: ...

    async def main() -> None:
        broker = await app.broker()
        await work.aenqueue()
        assert [seen.changed for seen in await look(broker)] == [True]
        app.alert("full", depth=0, clear=50)
        again = await app.broker()
        assert [(seen.changed, seen.state.raised) for seen in await look(again)] == [(False, True)]
        await app.aclose()

    asyncio.run(main())
