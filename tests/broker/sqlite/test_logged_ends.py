"""Ends that the event log tells of go the short way, too; unless others of their batch do not, and the order
would show.
"""

import asyncio
from pathlib import Path

import pytest

from windlass.broker.contract import Broker, Options
from windlass.broker.sqlite import SqliteBroker, settle
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness
from windlass.core.event import FROM_START, Emit
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND

Ends = list[tuple[str, Outcome | None, int | None]]
"""Lane, outcome and wait."""


def on_sqlite(folder: Path, outcomes: list[Outcome], *, lanes: bool) -> Ends:
    """Jobs that waited for a second each, ended in one call; what the log says of their ends."""

    async def opened(clock: ManualClock, options: Options) -> Broker:
        return await SqliteBroker.open(folder / "windlass.db", clock=clock, options=options)

    async def main() -> Ends:
        store = await Harness.open(opened)
        await store.queue("q", emit=Emit.FINAL)
        jobs = [await store.add(lane=f"lane{number}" if lanes else "") for number in range(len(outcomes))]
        store.advance(SECOND)
        leases = {lease.job: lease for lease in await (await store.worker()).take(len(outcomes))}
        await store.broker.settle(
            [
                Settlement(job=job, fence=leases[job].fence, outcome=outcome, runtime=5)
                for job, outcome in zip(jobs, outcomes, strict=True)
            ]
        )
        page = await store.broker.events(FROM_START, 100, 0)
        await store.close()
        assert [event.job for event in page.items] == jobs, "in the order of the call"
        assert [event.fence for event in page.items] == [leases[job].fence for job in jobs]
        return [(event.lane, event.outcome, event.waited) for event in page.items]

    return asyncio.run(main())


@pytest.mark.parametrize("lanes", [False, True])
def test_ends_that_are_logged_go_the_short_way(
    tmp_path: Path, lanes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def long_way(*_: object) -> None:
        pytest.fail("it went the long way")

    monkeypatch.setattr(settle, "_settle_one", long_way)
    found = on_sqlite(tmp_path, [Outcome.DONE] * 3, lanes=lanes)
    assert found == [(f"lane{number}" if lanes else "", Outcome.DONE, SECOND) for number in range(3)]


def test_the_order_of_a_mixed_batch_is_kept(tmp_path: Path) -> None:
    outcomes = [Outcome.DONE, Outcome.RETRY, Outcome.DONE]
    assert [outcome for _, outcome, _ in on_sqlite(tmp_path, outcomes, lanes=False)] == outcomes
