"""The PostgreSQL broker answers as the reference model does, whatever is called in whatever order."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from tests.broker.postgres.namespaces import namespaces, running
from tests.broker.worlds import SMALL_WORLD

from windlass.broker.contract import Broker, Options
from windlass.broker.postgres import settling, ways
from windlass.broker.postgres.install import quoted
from windlass.clock import ManualClock
from windlass.conformance.machine import machine_for
from windlass.conformance.machine.universe import Round, Wish
from windlass.core.lease import Ask, Claimed
from windlass.core.settlement import Settlement

__all__ = ["namespaces"]

_PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=True
)
_BLOCKS = "SELECT session, at, i, jobs FROM {schema}.lease_block"


@pytest.fixture(scope="module", autouse=True)
def _short_ways() -> Iterator[None]:
    """As often as they serve: a few jobs are worth it, and nobody remembers where they did not."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settling, "_APART", 2)
        patched.setattr(ways, "_REMEMBERED", 0.0)
        yield


async def _opened(clock: ManualClock, options: Options) -> Broker:
    return await running().open(clock, options)


class _Watched(machine_for(_opened)):
    """Watches blocks of leases, which only some jobs come into: that none went wrong says little of none."""

    blocks_made: ClassVar[int] = 0
    blocks_left: ClassVar[int] = 0
    """How often some jobs of a block had ended, and the others stayed in it."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[tuple[Any, ...], set[int]] = {}

    def claim(self, ask: Ask) -> Claimed:
        answer = super().claim(ask)
        self._look_at_blocks()
        return answer

    def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> None:
        super().settle(items, ask)
        self._look_at_blocks()

    def _look_at_blocks(self) -> None:
        broker: Any = self._brokers[1]
        rows = self.run(broker._pool.call(_BLOCKS.format(schema=quoted(broker.namespace))))
        blocks = {tuple(row)[:3]: set(row["jobs"]) for row in rows}
        _Watched.blocks_made += len(blocks.keys() - self._blocks.keys())
        _Watched.blocks_left += sum(blocks.get(key, jobs) < jobs for key, jobs in self._blocks.items())
        self._blocks = blocks


@pytest.mark.usefixtures("namespaces")
def test_the_machine_makes_blocks_of_leases_and_ends_parts_of_them() -> None:
    _Watched.blocks_made = _Watched.blocks_left = 0
    machine: Any = _Watched()
    machine.open(world=SMALL_WORLD, backlog=(Wish(job=1, queue="laned"),))
    wishes = tuple(Wish(job=number) for number in range(2, 11))
    machine.work_off(wishes=wishes, session=1, spared=1, rounds=[Round(left=frozenset((0, 4)))])
    machine.everything_holds()
    assert (machine.blocks_made, machine.blocks_left) == (3, 2)
    machine.teardown()


@pytest.mark.usefixtures("namespaces")
class TestFew(_Watched.TestCase):
    settings = settings(_PATIENT, max_examples=10, stateful_step_count=25)


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
class TestMany(_Watched.TestCase):
    settings = settings(_PATIENT, max_examples=300, stateful_step_count=60)

    def runTest(self) -> None:  # noqa: N802 (as unittest calls it)
        _Watched.blocks_made = _Watched.blocks_left = 0
        super().runTest()
        assert _Watched.blocks_made > 0
        assert _Watched.blocks_left > 0
