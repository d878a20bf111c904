"""A distributed task queue: nothing lost, nothing completed by a stale worker, every wait explained."""

from windlass.client.app import Windlass
from windlass.client.flow import Chain, Group, chain, group
from windlass.client.flow_handle import Flow, FlowState, FlowView
from windlass.client.handle import Job
from windlass.client.task import Call, Task
from windlass.core.limits import Rate
from windlass.core.retry import RetryPolicy
from windlass.core.secret import Secret
from windlass.signals import GiveUp, Retry, Snooze
from windlass.version import __version__
from windlass.worker.current import current

__all__ = [
    "Call",
    "Chain",
    "Flow",
    "FlowState",
    "FlowView",
    "GiveUp",
    "Group",
    "Job",
    "Rate",
    "Retry",
    "RetryPolicy",
    "Secret",
    "Snooze",
    "Task",
    "Windlass",
    "__version__",
    "chain",
    "current",
    "group",
]
