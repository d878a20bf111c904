"""Logins that have ended: a cookie that was logged out opens nothing, at any server of the namespace.

A document is kept for each, named by the hour in which its cookie would have ended and its id, so that
those whose time is over are found at the beginning and dropped. Only logouts are written: a login costs the
store nothing.
"""

from windlass.admin.reading import store_time
from windlass.broker.contract import Broker
from windlass.core.settings import Kind, Subject
from windlass.core.units import HOUR, Micros

_DROPPED = 10
"""Documents of the past that a logout drops, at the most."""


class Logins:
    """The logins of one namespace."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def end(self, login: str, until: Micros) -> None:
        """Log out: the login, whose cookie would have been good until then, opens nothing any more."""
        await self._broker.override(Subject(Kind.LOGIN, _name(login, until)), b"ended", 0)
        await self._drop(await store_time(self._broker))

    async def has_ended(self, login: str, until: Micros) -> bool:
        """Whether somebody has logged out of it."""
        name = _name(login, until)
        before = Subject(Kind.LOGIN, name[:-1])  # the name that sorts just before, except for unused ones
        found = await self._broker.documents(Kind.LOGIN, before, 1)
        return any(document.subject.name == name for document in found)

    async def _drop(self, now: Micros) -> None:
        for document in await self._broker.documents(Kind.LOGIN, None, _DROPPED):
            if document.subject.name < _name("", now - HOUR):
                await self._broker.override(document.subject, None, document.version)


def _name(login: str, until: Micros) -> str:
    return f"{until // HOUR:08}-{login}"
