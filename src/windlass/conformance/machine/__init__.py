"""The state machine: Hypothesis calls every verb of the contract, in a world so small that calls collide.

TestModel = machine_for().TestCase                  # the model alone, held against an independent ledger
TestMine = machine_for(open_my_broker).TestCase     # and compared with a store, after each step
"""

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.conformance.machine.base import Machine
from windlass.conformance.machine.consume import Live
from windlass.conformance.machine.operate import OperateQueues
from windlass.conformance.machine.produce import Plan
from windlass.conformance.machine.read import Read


async def open_model(clock: ManualClock, options: Options) -> Broker:
    """Open the reference model."""
    return MemoryBroker(clock=clock, options=options)


def machine_for(open_store: OpenBroker | None = None, *, model: OpenBroker = open_model) -> type[Machine]:
    """The machine that checks the model, or with a store both of them, step by step the same."""

    class Windlass(Plan, Live, OperateQueues, Read):
        opens = (model,) if open_store is None else (model, open_store)

    return Windlass
