"""A namespace of a server: how a call is said, and the carrier of calls for coroutines."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.driver import code_of
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.pool import Pool
from windlass.broker.postgres.statements import statement
from windlass.broker.postgres.trouble import Refusal
from windlass.broker.postgres.verbs import ProcedureCall, take_in
from windlass.clock import Clock
from windlass.core.units import Micros

_T = TypeVar("_T")
_TAKE_IN_FIRST: Final = "WL002"
"""What a function says that shows jobs, if there are some that it does not know yet."""


class Namespace:
    """How calls are said to a namespace."""

    def __init__(self, name: str, clock: Clock | None) -> None:
        self.name = name
        self.schema = quoted(name)
        self._clock = clock

    def now(self) -> Micros | None:
        """The time; None: the server's counts."""
        return None if self._clock is None else self._clock.now()

    def said(self, call: ProcedureCall[Any], *, insists: bool = True) -> tuple[bytes, Sequence[Any]]:
        """The statement of a call, and its arguments.

        Numbers go as text: psycopg would choose their type by their value, and prepare a statement for each.
        """
        arguments = call.arguments
        if call.timed:
            arguments = (self.now(), *arguments)
        if call.shows_jobs:
            arguments = (insists, *arguments)
        bound = [str(each) if type(each) is int else each for each in arguments]
        return statement(self.schema, call.function, len(bound)), bound


class Store:
    """The carrier for coroutines."""

    def __init__(self, pool: Pool, namespace: Namespace, bell: Bell) -> None:
        self._pool = pool
        self._namespace = namespace
        self._bell = bell

    async def run(self, call: ProcedureCall[_T]) -> _T:
        """Make a call."""
        if not call.function:
            return call.read(())
        try:
            return await self._run(call, insists=True)
        except Refusal as error:
            if code_of(error) != _TAKE_IN_FIRST:
                raise
        before = await self._run(take_in(None), insists=True)
        while before is not None:
            before = await self._run(take_in(before), insists=True)
        return await self._run(call, insists=False)

    async def _run(self, call: ProcedureCall[_T], *, insists: bool) -> _T:
        said, arguments = self._namespace.said(call, insists=insists)
        answer = call.read(await self._pool.fetch(said, arguments, named=call.named))
        if call.rings:
            self._bell.ring()
        return answer
