"""What every adapter to a message broker must do, as tests: they run unchanged on the real message broker.

    from windlass.conformance.bridges.logs import *

    @pytest.fixture
    def logs() -> Iterator[LogGround]:
        with asyncio.Runner() as runner:
            yield MyGround(runner, ...)

The obligations are named in `windlass.bridges.source` and `windlass.bridges.sink`.
"""

from collections.abc import Iterator

from windlass.bridges import sink, source


def obligations() -> set[str]:
    """Every named obligation of adapters."""
    return {name for module in (source, sink) for text in _docstrings(module) for name in _named(text)}


def _docstrings(module: ModuleType) -> Iterator[str]:
    yield module.__doc__ or ""
    for part in vars(module).values():
        if getattr(part, "__module__", "") == module.__name__:
            yield from (
                (member.__doc__ or "") for member in vars(part).values() if hasattr(member, "__doc__")
            )


def _named(text: str) -> Iterator[str]:
    for line in text.splitlines():
        name, colon, _ = line.strip().removeprefix("- ").partition(":")
        if line.strip().startswith("- ") and colon and name.isidentifier():
            yield name
