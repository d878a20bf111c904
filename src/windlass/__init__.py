"""A distributed task queue: nothing lost, nothing completed by a stale worker, every wait explained."""

from typing import TYPE_CHECKING

from windlass.version import __version__

# A public name stands here, in the table below and in `__all__`; a test compares them. Its module is imported
# when the name is first asked for: `windlass --help` needs none of them.
if TYPE_CHECKING:
    from windlass.client.app import Windlass
    from windlass.client.flow import Chain, Group, chain, group
    from windlass.client.flow_handle import Flow, FlowState, FlowView
    from windlass.client.handle import Job
    from windlass.client.outgoing import OutgoingJob
    from windlass.client.task import Call, Task
    from windlass.core.dependency import Depends, injected
    from windlass.core.limits import Rate
    from windlass.core.retry import RetryPolicy
    from windlass.core.secret import Secret
    from windlass.core.unique import Unique
    from windlass.signals import Cancelled, GiveUp, Retry, Snooze
    from windlass.worker.current import RunningJob, current
    from windlass.worker.surroundings import Proceed
else:
    _MODULES = {
        "Call": "windlass.client.task",
        "Cancelled": "windlass.signals",
        "Chain": "windlass.client.flow",
        "Depends": "windlass.core.dependency",
        "Flow": "windlass.client.flow_handle",
        "FlowState": "windlass.client.flow_handle",
        "FlowView": "windlass.client.flow_handle",
        "GiveUp": "windlass.signals",
        "Group": "windlass.client.flow",
        "Job": "windlass.client.handle",
        "OutgoingJob": "windlass.client.outgoing",
        "Proceed": "windlass.worker.surroundings",
        "Rate": "windlass.core.limits",
        "Retry": "windlass.signals",
        "RetryPolicy": "windlass.core.retry",
        "RunningJob": "windlass.worker.current",
        "Secret": "windlass.core.secret",
        "Snooze": "windlass.signals",
        "Task": "windlass.client.task",
        "Unique": "windlass.core.unique",
        "Windlass": "windlass.client.app",
        "chain": "windlass.client.flow",
        "current": "windlass.worker.current",
        "group": "windlass.client.flow",
        "injected": "windlass.core.dependency",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415 - only when a name is missing

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Call",
    "Cancelled",
    "Chain",
    "Depends",
    "Flow",
    "FlowState",
    "FlowView",
    "GiveUp",
    "Group",
    "Job",
    "OutgoingJob",
    "Proceed",
    "Rate",
    "Retry",
    "RetryPolicy",
    "RunningJob",
    "Secret",
    "Snooze",
    "Task",
    "Unique",
    "Windlass",
    "__version__",
    "chain",
    "current",
    "group",
    "injected",
]
