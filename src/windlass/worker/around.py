"""A task with what is around it: middleware, then dependencies, then its function. Made once, when a worker
begins: the executor, the invokers and the dispatcher take it for any other task.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from windlass.core.dependency import Node, ordered
from windlass.core.signature import Signature
from windlass.worker import twins
from windlass.worker.current import RunningJob, current
from windlass.worker.dispatcher import is_async
from windlass.worker.handing import called_beside
from windlass.worker.in_thread import call_blocking
from windlass.worker.injection import Given, GivenOnLoop, Values, arguments, replaced, split
from windlass.worker.program import Registered, RunsIn, TaskRules
from windlass.worker.run import running
from windlass.worker.surroundings import Middleware, Proceed


class Surrounded(msgspec.Struct, frozen=True, kw_only=True):
    """A task as workers run it: its function does all that is around it as well."""

    name: str
    signature: Signature
    options: TaskRules
    function: Callable[..., Any]


def surrounded(task: Registered, middleware: Sequence[Middleware]) -> Registered:
    """The task with what is around it; the task itself, if that is nothing."""
    needs = task.signature.injected
    if not middleware and not needs:
        return task
    nodes = ordered(needs, label=f"{task.name}()", replaced=replaced)
    before, beside = (nodes, ()) if is_async(task.function) else split(nodes)
    if is_async(task.function):
        return _made(task, _on_loop(middleware, _with_all(task, before)), task.options.run)
    if not middleware and not before:
        return _made(task, _with_plain(task, beside), task.options.run)
    # What is around the function is on the loop, and the function where it would be without it.
    function = _on_loop(middleware, _with_first(task, before, beside))
    return _made(task, function, "process" if task.options.run == "process" else None)


def _made(task: Registered, function: Callable[..., Any], run: RunsIn | None) -> Registered:
    options: Any = task.options
    if options.run != run:
        options = msgspec.structs.replace(options, run=run)
    return Surrounded(name=task.name, signature=task.signature, options=options, function=function)


# --- dependencies -------------------------------------------------------------------------------------------


def _with_all(task: Registered, nodes: Sequence[Node]) -> Callable[..., Any]:
    """An `async def` task with its dependencies, on a loop."""
    function, needs = task.function, task.signature.injected.items()

    async def call(*args: Any, **kwargs: Any) -> Any:
        values: Values = {}

        async def last() -> Any:
            pid = twins.pid
            try:
                return await function(*args, **kwargs, **arguments(needs, values))
            finally:
                _end_copy(task, pid)

        return await GivenOnLoop(nodes, values).call(last)

    return call


def _with_plain(task: Registered, nodes: Sequence[Node]) -> Callable[..., Any]:
    """A `def` task with plain dependencies, all called on one thread."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return _given(task, nodes, {}, args, kwargs)

    return call


def _with_first(task: Registered, first: Sequence[Node], rest: Sequence[Node]) -> Callable[..., Any]:
    """A `def` task with dependencies of which the loop gives the first. The rest, and the function, are
    called where the function alone would be.
    """
    inline = _is_inline(task)

    async def call(*args: Any, **kwargs: Any) -> Any:
        values: Values = {}

        async def inner() -> Any:
            last = partial(_given, task, rest, values, args, kwargs)
            return last() if inline else await called_beside(running.get(), last)

        return await GivenOnLoop(first, values).call(inner)

    return call


def _given(
    task: Registered, nodes: Sequence[Node], values: Values, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a `def` task with what is still to be given to it."""

    def call() -> Any:
        named = {**kwargs, **arguments(task.signature.injected.items(), values)}
        pid = twins.pid
        try:
            if _is_inline(task):
                return task.function(*args, **named)
            return call_blocking(running.get(), task.function, args, named).value
        finally:
            _end_copy(task, pid)

    return Given(nodes, values).call(call)


def _end_copy(task: Registered, pid: int) -> None:
    """A copy of the process that the task has made ends with its function: what is around it would be done
    twice.
    """
    if twins.pid != pid:
        twins.end_twin(task.name)


def _is_inline(task: Registered) -> bool:
    return task.options.run in ("inline", "loop")


# --- middleware ---------------------------------------------------------------------------------------------


def _on_loop(middleware: Sequence[Middleware], function: Callable[..., Any]) -> Callable[..., Any]:
    if not middleware:
        return function
    outermost_last = tuple(reversed(middleware))

    async def call(*args: Any, **kwargs: Any) -> Any:
        job = current.job
        proceed: Proceed = partial(function, *args, **kwargs)
        for each in outermost_last:
            proceed = partial(_through, each, job, proceed)
        return await proceed()

    return call


async def _through(middleware: Middleware, job: RunningJob, proceed: Proceed) -> Any:
    called: list[Any] = []

    def run() -> Any:
        called.append(proceed())
        return called[-1]

    value = await middleware(job, run)
    forgotten = [each for each in called if _has_not_begun(each)]
    if forgotten or inspect.isawaitable(value):
        for each in (*forgotten, value):
            if inspect.iscoroutine(each):
                each.close()
        # What it was to await has not run: a task that returns nothing would be done all the same.
        name = getattr(middleware, "__name__", type(middleware).__name__)
        raise TypeError(f"middleware {name}() does not await run(): write return await run()")
    return value


def _has_not_begun(work: object) -> bool:
    return inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED
