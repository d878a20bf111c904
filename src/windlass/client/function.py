"""Which functions can be tasks: what a worker can call with arguments from a store, and wait for."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

from windlass.core.names import check_own_task
from windlass.core.option import shown
from windlass.errors import InvalidOption


def check_function(function: object) -> Callable[..., Any]:
    """The function inside, or a refusal that says what to write instead."""
    if isinstance(function, staticmethod):
        function = cast("staticmethod[..., Any]", function).__func__
    if isinstance(function, type):
        raise InvalidOption(f"a task is a function, not the class {function.__qualname__}; write a function")
    if not callable(function):
        raise InvalidOption(f"a task is a function, not {shown(function)}")
    inner = _innermost(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InvalidOption(
            f"{_called(function)} is a generator, which does nothing when it is called; return a list instead"
        )
    if _is_method(function):
        raise InvalidOption(
            f"{_called(function)} is a method, and its object cannot be stored with a call; "
            "use a function or a staticmethod"
        )
    return function


def name_of(function: Callable[..., Any], given: str | None) -> str:
    """The name of a task: the one given, else the function's."""
    if given is not None:
        return check_own_task(given)
    name = getattr(function, "__name__", "<none>")
    if name.startswith("<"):
        raise InvalidOption(f"{shown(function)} has no name of its own; give the task one: name=...")
    return check_own_task(name)


def _innermost(function: Callable[..., Any]) -> object:
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = cast("functools.partial[Any]", inner).func
    return inner if inspect.isroutine(inner) else getattr(inner, "__call__", inner)  # noqa: B004


def _is_method(function: Callable[..., Any]) -> bool:
    """A function that stands in a class, as the decorator sees it: not bound to anything."""
    if not inspect.isfunction(function):
        return False
    *outer, _ = function.__qualname__.split(".")
    first = next(iter(inspect.signature(function).parameters), None)
    return bool(outer) and outer[-1] != "<locals>" and first in ("self", "cls")


def _called(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', type(function).__qualname__)}()"
