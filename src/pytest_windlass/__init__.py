"""The pytest plugin of Windlass: fixtures that run jobs inside tests.

Every pytest of an environment that has Windlass loads it, so it stands outside of the package, and imports
nothing of it until a fixture is used.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from windlass import Windlass
    from windlass.testing import AsyncBench, Bench

_BENCHES = ("windlass_testing", "windlass_async_testing", "windlass_inline")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting that names the app."""
    parser.addini("windlass_app", "the Windlass app that the fixtures are for, as module:app", default="")


@pytest.fixture
def windlass_app(request: pytest.FixtureRequest) -> "Windlass":
    """The app: the one that the setting `windlass_app` names. Define this fixture yourself for another."""
    from windlass.errors import InvalidOption  # noqa: PLC0415 - see the head of the file
    from windlass.loading import load_app  # noqa: PLC0415

    name = cast("str", request.config.getini("windlass_app"))
    if not name:
        raise pytest.UsageError(
            'which app? Set windlass_app = "package.module:app" under [tool.pytest.ini_options], '
            "or define a fixture windlass_app that returns it"
        )
    try:
        return cast("Windlass", load_app(name))
    except InvalidOption as error:
        raise pytest.UsageError(f"windlass_app: {error}") from error


@pytest.fixture
def windlass_testing(windlass_app: "Windlass") -> "Iterator[Bench]":
    """`testing(app)` for the length of a test: jobs run when the test says so."""
    from windlass.testing import testing  # noqa: PLC0415

    with testing(windlass_app) as bench:
        yield bench


@pytest.fixture
def windlass_async_testing(windlass_app: "Windlass") -> "Iterator[AsyncBench]":
    """The same for async tests: its verbs are awaited."""
    from windlass.testing.blocks import async_bench  # noqa: PLC0415

    with async_bench(windlass_app) as bench:
        yield bench


@pytest.fixture
def windlass_inline(windlass_app: "Windlass") -> "Iterator[Bench]":
    """`inline(app)` for the length of a test: jobs run when they are enqueued."""
    from windlass.testing import inline  # noqa: PLC0415

    with inline(windlass_app) as bench:
        yield bench


@pytest.fixture
def windlass_override() -> "Iterator[Callable[[Callable[..., Any], Callable[..., Any]], None]]":
    """`windlass_override(get_db, fake)`: what tasks depend on is given by `fake` until the test ends."""
    from windlass.testing import override  # noqa: PLC0415

    with contextlib.ExitStack() as stack:

        def replace(source: "Callable[..., Any]", fake: "Callable[..., Any]") -> None:
            stack.enter_context(override(source, fake))

        yield replace


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[Any]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what happened to the report of a test that failed."""
    report = yield
    if call.when == "call" and report.failed:
        arguments = cast("dict[str, object]", getattr(item, "funcargs", {}))
        for name in _BENCHES:
            if name in arguments:
                with contextlib.suppress(Exception):  # the failure is what matters
                    report.sections.append(("windlass", str(arguments[name])))
    return report
