"""Every test of the conformance suite, by name; see the package for how to run it on a broker."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import windlass.conformance


def collect() -> dict[str, Callable[..., Any]]:
    """The tests of all modules of the suite."""
    found: dict[str, Callable[..., Any]] = {}
    for module in pkgutil.iter_modules(windlass.conformance.__path__):
        if module.name == "suite":
            continue
        for name, member in vars(importlib.import_module(f"windlass.conformance.{module.name}")).items():
            if name.startswith("test_") and found.setdefault(name, member) is not member:
                raise ValueError(f"the suite has two tests called {name}")
    return found


globals().update(collect())  # all that `from windlass.conformance.suite import *` is for
