"""Workers inside this process: one for each namespace of an app. Apart, so that producers load none of it."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from windlass.core.duration import Duration, micros
from windlass.worker.embedded import EmbeddedWorker
from windlass.worker.options import WorkerOptions
from windlass.worker.several import SeveralWorkers, shared_out

if TYPE_CHECKING:
    from windlass.client.app import Windlass


def embedded(
    app: "Windlass",
    *,
    concurrency: int,
    queues: Sequence[str],
    groups: Sequence[str],
    grace: Duration | None,
    intakes: bool,
) -> EmbeddedWorker | SeveralWorkers:
    """See `Windlass.worker`."""
    options = WorkerOptions(
        concurrency=concurrency,
        queues=tuple(queues),
        groups=tuple(groups),
        grace=None if grace is None else micros(grace, name="grace"),
        intakes=intakes,
    )
    if app.connection.is_of_a_test:
        return _made(app, options, IdleWorker)
    if app is not app.home or len(app.namespaces) == 1:
        return _made(app, options)
    shares = shared_out(options, app.namespaces, lambda queue: app.place_of(queue).config.namespace)
    workers = [_made(app.namespaces[name], share) for name, share in shares.items()]
    return SeveralWorkers(app, workers)


class IdleWorker(EmbeddedWorker):
    """The worker inside an application in a block of `windlass.testing`: the test alone runs jobs."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return


def _made(
    place: "Windlass", options: WorkerOptions, kind: type[EmbeddedWorker] = EmbeddedWorker
) -> EmbeddedWorker:
    connection = place.connection
    return kind(place, options, open_broker=connection.broker, close_broker=connection.leave)
