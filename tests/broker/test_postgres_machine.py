"""The PostgreSQL broker answers as the reference model does, whatever is called in whatever order."""

import pytest
from hypothesis import HealthCheck, settings
from tests.broker.postgres.namespaces import namespaces, running

from windlass.broker.contract import Broker, Options
from windlass.clock import ManualClock
from windlass.conformance.machine import machine_for

__all__ = ["namespaces"]

_PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=True
)


async def _opened(clock: ManualClock, options: Options) -> Broker:
    return await running().open(clock, options)


_Machine = machine_for(_opened)


@pytest.mark.usefixtures("namespaces")
class TestFew(_Machine.TestCase):
    settings = settings(_PATIENT, max_examples=10, stateful_step_count=25)


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
class TestMany(_Machine.TestCase):
    settings = settings(_PATIENT, max_examples=300, stateful_step_count=60)
