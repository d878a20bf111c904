"""Giving a run what it depends on, and taking it back: in the order of need, and the other way round."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from typing import Any

from windlass.core.dependency import Kind, Node, Source, named

Values = dict[Source, Any]
"""What the dependencies of one run gave. Each is called once in a run."""

replaced: dict[Source, Source] = {}
"""What tests call instead of dependencies (`windlass.testing.override`)."""


def split(nodes: Iterable[Node]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """For a `def` task: what its loop has to give, and the rest, which its own thread calls."""
    nodes = tuple(nodes)
    on_loop: set[Source] = set()
    for node in reversed(nodes):  # each stands behind what it needs
        if node.kind.needs_loop or node.key in on_loop:
            on_loop.update((node.key, *(key for _, key in node.needs)))
    first = tuple(node for node in nodes if node.key in on_loop)
    return first, tuple(node for node in nodes if node.key not in on_loop)


def arguments(needs: Iterable[tuple[str, Source]], values: Values) -> dict[str, Any]:
    """What is given to a function, by the names of its parameters."""
    return {name: values[key] for name, key in needs}


class Given:
    """Dependencies of a run that are called without a loop."""

    def __init__(self, nodes: Sequence[Node], values: Values) -> None:
        self._nodes = nodes
        self._values = values
        self._open: list[Generator[Any, None, None]] = []

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function with them in place. What it raises is thrown into those that have yielded, the last
        one first. None of them ends it: it is raised in the end, or what one of them raises in its place.
        """
        try:
            self._enter()
            value = function()
        except BaseException as error:  # noqa: BLE001 - raised again
            failure: BaseException | None = error
        else:
            failure = None
        for generator in reversed(self._open):
            failure = _left(generator, failure)
        try:
            if failure is not None:
                raise failure
            return value  # pyright: ignore[reportPossiblyUnboundVariable]
        finally:
            failure = None  # its traceback holds this frame

    def _enter(self) -> None:
        for node in self._nodes:
            made = node.source(**arguments(node.needs, self._values))
            if node.kind is Kind.YIELDS:
                self._open.append(made)
                made = next(made, _NOTHING)
                if made is _NOTHING:
                    raise _no_value(node)
            self._values[node.key] = made


class GivenOnLoop:
    """Dependencies of a run that are called on a loop: of every kind."""

    def __init__(self, nodes: Sequence[Node], values: Values) -> None:
        self._nodes = nodes
        self._values = values
        self._open: list[Generator[Any, None, None] | AsyncGenerator[Any, None]] = []

    async def call(self, function: Callable[[], Any]) -> Any:
        """As `Given.call`, for a function that is awaited."""
        try:
            await self._enter()
            value = await function()
        except BaseException as error:  # noqa: BLE001 - raised again
            failure: BaseException | None = error
        else:
            failure = None
        for generator in reversed(self._open):
            is_plain = isinstance(generator, Generator)
            failure = _left(generator, failure) if is_plain else await _aleft(generator, failure)
        try:
            if failure is not None:
                raise failure
            return value  # pyright: ignore[reportPossiblyUnboundVariable]
        finally:
            failure = None  # its traceback holds this frame

    async def _enter(self) -> None:
        for node in self._nodes:
            made = node.source(**arguments(node.needs, self._values))
            if node.kind is Kind.IS_AWAITED:
                made = await made
            elif node.kind in (Kind.YIELDS, Kind.YIELDS_ASYNC):
                self._open.append(made)
                made = next(made, _NOTHING) if node.kind is Kind.YIELDS else await anext(made, _NOTHING)
                if made is _NOTHING:
                    raise _no_value(node)
            self._values[node.key] = made


_NOTHING = object()


def _no_value(node: Node) -> RuntimeError:
    return RuntimeError(f"dependency {named(node.source)}() has ended without a yield")


def _left(generator: Generator[Any, None, None], failure: BaseException | None) -> BaseException | None:
    """Let a generator end; the exception that the run ends with."""
    try:
        if failure is None:
            next(generator)
        else:
            generator.throw(failure)
    except StopIteration:
        return failure
    except BaseException as error:  # noqa: BLE001 - the next one hears of it
        return _instead(error, failure)
    with contextlib.suppress(BaseException):
        generator.close()
    return failure or _yields_twice(generator)


async def _aleft(generator: AsyncGenerator[Any, None], failure: BaseException | None) -> BaseException | None:
    try:
        if failure is None:
            await anext(generator)
        else:
            await generator.athrow(failure)
    except StopAsyncIteration:
        return failure
    except BaseException as error:  # noqa: BLE001 - the next one hears of it
        return _instead(error, failure)
    with contextlib.suppress(BaseException):
        await generator.aclose()
    return failure or _yields_twice(generator)


def _instead(error: BaseException, failure: BaseException | None) -> BaseException:
    """What a generator raises, or what went through it: it turns a `StopIteration` into a `RuntimeError`."""
    is_stop = isinstance(failure, StopIteration | StopAsyncIteration)
    return failure if is_stop and isinstance(error, RuntimeError) and error.__cause__ is failure else error


def _yields_twice(generator: object) -> RuntimeError:
    return RuntimeError(f"dependency {getattr(generator, '__name__', generator)}() yields more than once")
