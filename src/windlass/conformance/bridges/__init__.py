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

_PARTS = (source.Log, source.LogSource, source.QueueSource, sink.Sink)


def obligations() -> set[str]:
    """Every named obligation of adapters."""
    texts = [source.__doc__, sink.__doc__]
    texts += [member.__doc__ for part in _PARTS for member in vars(part).values()]
    return {name for text in texts for name in _named(text or "")}


def _named(text: str) -> Iterator[str]:
    for line in text.splitlines():
        name, colon, _ = line.strip().removeprefix("- ").partition(":")
        if line.strip().startswith("- ") and colon and name.isidentifier():
            yield name
