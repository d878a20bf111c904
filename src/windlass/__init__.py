"""A distributed task queue: nothing lost, nothing completed by a stale worker, every wait explained."""

from windlass.client.app import Windlass
from windlass.client.handle import Job
from windlass.client.task import Call, Task
from windlass.core.limits import Rate
from windlass.core.retry import RetryPolicy

__version__ = "0.1.0.dev0"

__all__ = ["Call", "Job", "Rate", "RetryPolicy", "Task", "Windlass", "__version__"]
