"""Verbs of a broker for tests without a loop."""

import asyncio
from collections.abc import Callable
from typing import Any

from windlass.broker.sqlite import SqliteBroker


class _Verbs:
    def __init__(self, broker: SqliteBroker) -> None:
        self._broker = broker

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            async def main() -> Any:
                return await getattr(self._broker, verb)(*given, **named)

            return asyncio.run(main())

        return run


def run(broker: SqliteBroker) -> Any:
    """Every verb, each in a loop of its own: `run(broker).claim(ask)`."""
    return _Verbs(broker)
