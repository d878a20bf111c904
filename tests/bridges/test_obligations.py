"""What adapters must do and the suites that hold them to it say the same."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

from windlass.conformance import bridges
from windlass.conformance.bridges import obligations


def written() -> dict[str, Callable[..., Any]]:
    names = [module.name for module in pkgutil.iter_modules(bridges.__path__)]
    modules = [importlib.import_module(f"{bridges.__name__}.{name}") for name in names]
    return {
        name: test
        for module in modules
        for name, test in vars(module).items()
        if name.startswith("test_") and test.__module__ == module.__name__
    }


def obligation_of(test: str) -> str:
    """`test_<obligation>` or `test_<obligation>__<variant>`."""
    return test.removeprefix("test_").partition("__")[0]


def test_every_obligation_has_a_test_and_every_test_an_obligation() -> None:
    assert len(obligations()) > 25
    assert {obligation_of(name) for name in written()} == obligations()


def test_every_test_is_a_coroutine_on_a_message_broker() -> None:
    """Anything else would be collected, and pass without being run."""
    first = {name: next(iter(inspect.signature(test).parameters)) for name, test in written().items()}
    assert set(first.values()) <= {"logs", "sinks", "queues"}
    assert [name for name, test in written().items() if not inspect.iscoroutinefunction(test)] == []
