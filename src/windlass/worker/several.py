"""A worker for several namespaces: each is served by itself, with processes, sessions and slots of its own.

A namespace is the unit of atomicity, so a session, an ask and a sweep concern one. What is shared is the
command, its signals and its end.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec

from windlass.errors import InvalidOption
from windlass.worker.embedded import EmbeddedWorker
from windlass.worker.handing import OnThreads
from windlass.worker.lifespan import Held
from windlass.worker.options import WorkerOptions, groups_of
from windlass.worker.program import Program


def shared_out(
    options: WorkerOptions, programs: Mapping[str, Program], namespace_of: Callable[[str], str]
) -> dict[str, WorkerOptions]:
    """The options for each namespace that is to be served: queues that are named are served where they are.

    `InvalidOption`: a group of slots would serve queues of two namespaces.
    """
    if options.groups:
        return _groups_shared_out(options, namespace_of)
    if not options.queues:
        return {name: options for name, program in programs.items() if program.queues}
    shares: dict[str, list[str]] = {}
    for text in options.queues:
        shares.setdefault(namespace_of(text.partition("=")[0].strip()), []).append(text)
    return {name: msgspec.structs.replace(options, queues=tuple(queues)) for name, queues in shares.items()}


def _groups_shared_out(
    options: WorkerOptions, namespace_of: Callable[[str], str]
) -> dict[str, WorkerOptions]:
    shares: dict[str, list[str]] = {}
    for text, group in zip(options.groups, groups_of(options, {}), strict=True):
        names = sorted({namespace_of(queue) for queue in group.queues})
        if len(names) > 1:
            raise InvalidOption(
                f'the group "{text}" has queues of the namespaces {", ".join(names)}: slots serve one, so '
                "give each a group of its own"
            )
        shares.setdefault(names[0], []).append(text)
    return {name: msgspec.structs.replace(options, groups=tuple(groups)) for name, groups in shares.items()}


class SeveralWorkers:
    """Workers inside an application, one for each namespace; entered and left together."""

    def __init__(self, program: Program, workers: Sequence[EmbeddedWorker]) -> None:
        """The lifespan is that of the process, so it is entered once for all of them."""
        self.workers = tuple(workers)
        self._lifespan = Held(program, OnThreads(), on_end=self._end)
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            context = await self._lifespan.enter()
            stack.push_async_callback(self._lifespan.leave)
            for worker in self.workers:
                worker.context = context.copy()
                await stack.enter_async_context(worker)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def _end(self) -> None:
        """The lifespan has ended: no worker begins a job any more, and it is left when they have ended."""
        self._ending = asyncio.create_task(self._left_early())

    async def _left_early(self) -> None:
        for worker in self.workers:
            worker.end()
        for worker in self.workers:
            await worker.ended()
        self._lifespan.let_go()
