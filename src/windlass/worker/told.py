"""A performer that tells of the start and the end of each run. A worker has it only if somebody listens."""

from collections.abc import Sequence

from windlass.core.settlement import Settlement
from windlass.observe.runs import Begin, begun, ended, listening
from windlass.worker.conclude import Concluder
from windlass.worker.executor import Call, Performer
from windlass.worker.program import Registered
from windlass.worker.run import Run


def performer_for(conclude: Concluder) -> Performer:
    """The performer of this process, made when its app is imported and its logs are set up."""
    listeners = listening()
    return ToldPerformer(conclude, listeners) if listeners else Performer(conclude)


class ToldPerformer(Performer):
    """Tells listeners, around all that is done for a run."""

    def __init__(self, conclude: Concluder, listeners: Sequence[Begin]) -> None:
        super().__init__(conclude)
        self._listeners = listeners

    async def perform(self, call: Call, run: Run, task: Registered) -> Settlement:
        """As any performer does."""
        ends = begun(self._listeners, run.lease, run.clean)
        settlement = await super().perform(call, run, task)
        ended(ends, run.lease, settlement)
        return settlement
