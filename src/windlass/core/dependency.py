"""Dependencies: parameters of a task that are given at run time, and are no arguments. Pure.

    def charge(order: int, db: Pool = Depends(get_db)) -> None: ...
    def charge(order: int, db: Annotated[Pool, Depends(get_db)] = injected) -> None: ...

What is wrong with them is said when the task is registered: a run would be far too late.
"""

import contextlib
import functools
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
)
from enum import Enum
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    overload,
)

from windlass.core.annotation import resolved_parameters
from windlass.core.constraints import unaliased
from windlass.core.option import shown
from windlass.errors import InvalidOption

T = TypeVar("T")
Source: TypeAlias = Callable[..., Any]
"""A function that gives what a parameter asks for."""


class Dependency:
    """The marker that `Depends(f)` puts into a signature."""

    __slots__ = ("source",)

    def __init__(self, source: Source | None) -> None:
        self.source = source
        """None: `injected`, whose annotation names the function."""

    def __repr__(self) -> str:
        return "injected" if self.source is None else f"Depends({named(self.source)})"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"this is {self!r}, and no value has taken its place: workers inject it, and a plain call of a "
            f"task gives this argument itself (asked for .{name})"
        )


# The first that fits is taken. A plain function that returns an iterator is taken for a generator function:
# checkers see no difference, and few dependencies are iterators.
@overload
def Depends(source: Callable[..., AsyncGenerator[T, Any]], /) -> T: ...
@overload
def Depends(source: Callable[..., AsyncIterator[T]], /) -> T: ...
@overload
def Depends(source: Callable[..., Generator[T, Any, Any]], /) -> T: ...
@overload
def Depends(source: Callable[..., Iterator[T]], /) -> T: ...
@overload
def Depends(source: Callable[..., Coroutine[Any, Any, T]], /) -> T: ...
@overload
def Depends(source: Callable[..., T], /) -> T: ...
def Depends(source: Source, /) -> Any:  # noqa: N802 - a marker, written as in other frameworks
    """Mark a parameter of a task, or of another dependency: workers call the function and pass the value.

    It is a function, a coroutine function, a generator function or an async generator function. A generator
    yields once. Its code after the `yield` runs after the task. If the task raised an exception, the `yield`
    raises it.
    """
    kind_of(source)
    return Dependency(source)


injected: Any = Dependency(None)
"""The default of a parameter whose annotation has a `Depends`: so checkers let callers leave it out."""


class Kind(Enum):
    """How a function gives its value."""

    RETURNS = "returns"
    YIELDS = "yields"
    IS_AWAITED = "is awaited"
    YIELDS_ASYNC = "yields on a loop"

    @property
    def needs_loop(self) -> bool:
        """Whether it runs on an event loop only."""
        return self in (Kind.IS_AWAITED, Kind.YIELDS_ASYNC)


class Node(NamedTuple):
    """One dependency of a task, and what it asks for itself."""

    key: Source
    """The function that was written into a signature."""
    source: Source
    """The function that is called: the same, or what a test puts in its place."""
    kind: Kind
    needs: tuple[tuple[str, Source], ...]
    """Its parameters, with the keys of those nodes that give them."""


def kind_of(source: object) -> Kind:
    """How a function gives its value; `InvalidOption`: it is no function."""
    if isinstance(source, type) or not callable(source):
        raise InvalidOption(
            f"Depends takes a function, such as Depends(get_db), not {shown(source)}; write a function that "
            "returns it"
        )
    inner: Any = source
    while isinstance(inner, functools.partial):
        inner = cast("functools.partial[Any]", inner).func
    inner = inner if inspect.isroutine(inner) else getattr(inner, "__call__", inner)  # noqa: B004
    if getattr(inner, "__globals__", None) is vars(contextlib):
        raise InvalidOption(
            f"Depends takes a generator function as it is, so that a task gets what it yields: leave the "
            f"decorator of contextlib off {named(inner)}()"
        )
    if inspect.isasyncgenfunction(inner):
        return Kind.YIELDS_ASYNC
    if inspect.isgeneratorfunction(inner):
        return Kind.YIELDS
    return Kind.IS_AWAITED if inspect.iscoroutinefunction(inner) else Kind.RETURNS


def named(source: Source) -> str:
    """A function, as messages name it."""
    while isinstance(source, functools.partial):
        source = source.func
    return str(getattr(source, "__name__", None) or type(source).__name__)


def taken_out(signature: inspect.Signature, *, label: str) -> tuple[inspect.Signature, dict[str, Source]]:
    """A task's signature without what is injected, and what is, by name.

    `InvalidOption`: a parameter stands where it could take the place of an argument, or what it asks for can
    never be had.
    """
    needs = _needs(signature, label)
    if needs:
        _check_places(signature, needs, label)
        ordered(needs, label=label)
    kept = [each for name, each in signature.parameters.items() if name not in needs]
    return signature.replace(parameters=kept), needs


def ordered(
    needs: Mapping[str, Source], *, label: str, replaced: Mapping[Source, Source] | None = None
) -> tuple[Node, ...]:
    """All dependencies, each once and behind those that it needs. `replaced`: what a test calls instead."""
    graph = _Graph(replaced or {})
    for name, source in needs.items():
        graph.add(source, f'{label}: parameter "{name}"', ())
    return tuple(graph.nodes.values())


class _Graph:
    """Dependencies, in the order in which they can be called."""

    def __init__(self, replaced: Mapping[Source, Source]) -> None:
        self.nodes: dict[Source, Node] = {}
        self._replaced = replaced

    def add(self, key: Source, label: str, way: tuple[Source, ...]) -> None:
        if key in way:
            circle = " → ".join(f"{named(each)}()" for each in (*way[way.index(key) :], key))
            raise InvalidOption(f"{label}: these dependencies need each other: {circle}")
        if key in self.nodes:
            return
        source = self._replaced.get(key, key)
        label = f"{label}: {named(source)}()"
        signature = resolved_parameters(source, label=label)
        needs = _needs(signature, label)
        for name, parameter in signature.parameters.items():
            if name not in needs and _is_required(parameter):
                raise InvalidOption(
                    f'{label}: nothing gives its parameter "{name}": write {name} = Depends(...), or give it '
                    "a default; what it wants to know of the job it asks windlass.current"
                )
            if name in needs and parameter.kind is parameter.POSITIONAL_ONLY:
                raise InvalidOption(
                    f'{label}: parameter "{name}" is given by its name, so it cannot be before a "/"'
                )
        for name, need in needs.items():
            self.add(need, f'{label}: parameter "{name}"', (*way, key))
        self.nodes[key] = Node(key, source, kind_of(source), tuple(needs.items()))


def _needs(signature: inspect.Signature, label: str) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for name, parameter in signature.parameters.items():
        if isinstance(parameter.annotation, Dependency):
            raise InvalidOption(
                f'{label}: parameter "{name}" has {parameter.annotation!r} in place of a type: write '
                f"{name}: TYPE = {parameter.annotation!r}"
            )
        written = (*_marks(parameter.annotation), parameter.default)
        for each in written:
            if each is Depends:
                raise InvalidOption(
                    f'{label}: parameter "{name}" has Depends without a function: write Depends(f)'
                )
            if _is_another(each):
                package = type(each).__module__.partition(".")[0]
                raise InvalidOption(
                    f'{label}: parameter "{name}" has the Depends of {package}, which workers do not know: '
                    "import Depends from windlass"
                )
        _check_depth(parameter, label)
        marks = [each for each in written if isinstance(each, Dependency)]
        sources = {each.source for each in marks if each.source is not None}
        if len(sources) > 1:
            raise InvalidOption(f'{label}: parameter "{name}" has two Depends; which one is meant?')
        if sources:
            found[name] = sources.pop()
        elif marks:
            raise InvalidOption(
                f'{label}: parameter "{name}" is injected, and its annotation does not say by whom: write '
                f"{name}: Annotated[..., Depends(f)] = injected"
            )
    return found


def _marks(annotation: Any) -> tuple[Any, ...]:
    """What `Annotated` says of a parameter as a whole."""
    annotation = unaliased(annotation)
    if get_origin(annotation) is not Annotated:
        return ()
    return (*_marks(get_args(annotation)[0]), *annotation.__metadata__)


def _check_depth(parameter: inspect.Parameter, label: str) -> None:
    """Refuse a mark on a part of a type, which nobody would look at."""
    annotation = unaliased(parameter.annotation)
    while get_origin(annotation) is Annotated:
        annotation = unaliased(get_args(annotation)[0])
    inner = [mark for part in get_args(annotation) for mark in _marks_within(part)]
    for mark in inner:
        if mark is Depends or isinstance(mark, Dependency) or _is_another(mark):
            raise InvalidOption(
                f'{label}: parameter "{parameter.name}" has {mark!r} on a part of its type: write '
                f"{parameter.name}: Annotated[..., Depends(f)] around all of it"
            )


def _marks_within(annotation: Any, seen: frozenset[int] = frozenset()) -> Iterator[Any]:
    annotation = unaliased(annotation)
    if id(annotation) in seen:
        return  # a type that contains itself
    yield from _marks(annotation)
    for part in get_args(annotation):
        yield from _marks_within(part, seen | {id(annotation)})


def _is_another(mark: object) -> bool:
    """Whether it is the `Depends` of another framework, such as FastAPI, whose name is the same. A task would
    get the mark itself. It is known by its name: the framework is not imported for this.
    """
    return any(each.__name__ == "Depends" for each in type(mark).__mro__)


def _check_places(signature: inspect.Signature, needs: Mapping[str, Source], label: str) -> None:
    """A call by position must mean the same to Python, to type checkers and to the store."""
    kinds, before = inspect.Parameter, ""
    for name, parameter in signature.parameters.items():
        by_position = parameter.kind in (
            kinds.POSITIONAL_ONLY,
            kinds.POSITIONAL_OR_KEYWORD,
            kinds.VAR_POSITIONAL,
        )
        if name not in needs:
            if before and by_position:
                raise InvalidOption(
                    f'{label}: parameter "{before}" is injected, so it stands behind all that are given by '
                    f'position: move it behind "{name}", or behind a "*"'
                )
        elif parameter.kind in (kinds.POSITIONAL_ONLY, kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD):
            raise InvalidOption(f'{label}: parameter "{name}" is injected by its name, so it must have one')
        elif by_position:
            before = name


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )
