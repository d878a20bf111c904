"""For tests of code that enqueues jobs: a store in memory, a clock that they move, the real steps of a run.

`with testing(app) as t: ...`; docs/testing.md shows how.
"""

from windlass.testing.bench import AsyncBench, Bench
from windlass.testing.blocks import inline, testing
from windlass.testing.overriding import override
from windlass.testing.seen import Enqueued
from windlass.testing.worker import Ran

__all__ = ["AsyncBench", "Bench", "Enqueued", "Ran", "inline", "override", "testing"]
