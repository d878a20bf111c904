"""The SQLite broker answers as the reference model does, whatever is called in whatever order."""

import pytest
from hypothesis import HealthCheck, settings
from tests.broker.sqlite.files import new_file, remove_file

from windlass.broker.contract import Broker, Options
from windlass.broker.sqlite import SqliteBroker
from windlass.clock import ManualClock
from windlass.conformance.machine import machine_for


class _Removed(SqliteBroker):
    """A broker that takes its file along when it is closed."""

    async def close(self) -> None:
        await super().close()
        remove_file(self.store.path)


async def _opened(clock: ManualClock, options: Options) -> Broker:
    return _Removed(new_file(namespace=options.namespace), clock=clock, options=options)


_PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=True
)


class TestFew(machine_for(_opened).TestCase):
    settings = settings(_PATIENT, max_examples=10, stateful_step_count=25)


@pytest.mark.slow
class TestMany(machine_for(_opened).TestCase):
    settings = settings(_PATIENT, max_examples=300, stateful_step_count=60)
