"""The pytest plugin of the conformance suite: the `store` fixture, and tests that are coroutines."""

import asyncio
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import windlass.conformance

for _module in pkgutil.iter_modules(windlass.conformance.__path__, "windlass.conformance."):
    if _module.name != __name__:
        pytest.register_assert_rewrite(_module.name)

from windlass.conformance.bridges.ground import Ground  # noqa: E402 - after the assert rewrite
from windlass.conformance.harness import Harness, OpenBroker  # noqa: E402 - after the assert rewrite


@pytest.fixture
def store(open_broker: OpenBroker) -> Iterator[Harness]:
    """A broker on an empty namespace and a controlled clock. The test runs on the loop that opened it."""
    with asyncio.Runner() as runner:
        harness = runner.run(Harness.open(open_broker))
        harness.runner = runner
        try:
            yield harness
        finally:
            runner.run(harness.close())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test on the loop of its `store`, or of the message broker that it is for."""
    grounds = (one for one in pyfuncitem.funcargs.values() if isinstance(one, Harness | Ground))
    harness = next(grounds, None)
    if harness is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    harness.runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
