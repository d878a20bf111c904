"""A performer that calls listeners at the start and the end of each run. A worker without any has none."""

from collections.abc import Sequence

from windlass.core.settlement import Settlement
from windlass.observe.runs import OnStart, run_ends, run_listeners, run_starts
from windlass.worker.conclude import Concluder
from windlass.worker.executor import Performer, TaskCaller
from windlass.worker.program import Registered
from windlass.worker.run import Run


def performer_for(conclude: Concluder) -> Performer:
    """The performer of this process. Called when its app is imported and its logs are set up."""
    listeners = run_listeners()
    return ObservedPerformer(conclude, listeners) if listeners else Performer(conclude)


class ObservedPerformer(Performer):
    """Calls listeners around all that is done for a run."""

    def __init__(self, conclude: Concluder, listeners: Sequence[OnStart]) -> None:
        super().__init__(conclude)
        self._listeners = listeners

    async def perform(self, call: TaskCaller, run: Run, task: Registered) -> Settlement:
        """As any performer does."""
        at_end = run_starts(self._listeners, run.lease, run.clean)
        settlement = await super().perform(call, run, task)
        run_ends(at_end, run.lease, settlement)
        return settlement
