"""The health of a worker over HTTP, for probes: `/healthz` and `/readyz`, in the words of `windlass serve`.

The supervisor answers, on the loop that sends the heartbeats: no process is started for a probe, and if that
loop stands still, no answer comes. Neither page asks the store: a probe is answered at once, whatever the
store does.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from windlass.errors import InvalidOption
from windlass.observe.listener import Answer, Listener, host_and_port

LOOPBACK = "127.0.0.1"
_NOT_YET = "no process may start jobs: none has started yet, or the store does not answer"


class Supervised(Protocol):
    """What a supervisor says of itself."""

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        ...

    @property
    def hopeless(self) -> str | None:
        """Why no child can work, if none can."""
        ...

    def may_start_jobs(self) -> bool:
        """Whether a child may start jobs now."""
        ...


class Health:
    """What a worker says to probes. It has supervisors once its stores are open."""

    def __init__(self) -> None:
        self.supervisors: Sequence[Supervised] = ()

    def trouble(self) -> str | None:
        """Why the worker should be started anew. A store that is away is no reason: jobs that run would be
        interrupted, and nothing be gained.
        """
        for each in self.supervisors:
            if not each.stopping and (why := each.hopeless) is not None:
                return why
        return None

    def not_ready(self) -> str | None:
        """Why the worker starts no jobs at this moment."""
        if not self.supervisors:
            return "the store has not answered yet"
        if any(each.stopping for each in self.supervisors):
            return "stopping"
        if all(each.may_start_jobs() for each in self.supervisors):
            return None
        return self.trouble() or _NOT_YET


def health_address(text: str) -> tuple[str, int]:
    """Where health is served: `PORT` of this machine, or `HOST:PORT`."""
    found = host_and_port(text if ":" in text else f"{LOOPBACK}:{text}")
    if found is None:
        raise InvalidOption(
            f'health is served at PORT, for this machine, or at HOST:PORT, such as 0.0.0.0:8701, not "{text}"'
        )
    return found


@asynccontextmanager
async def health_served(address: str | None, health: Health) -> AsyncGenerator[str | None]:
    """Serve the pages, if an address was given; yields where the first is read."""
    if address is None:
        yield None
        return
    pages = {"/healthz": _page(health.trouble), "/readyz": _page(health.not_ready)}
    listener = Listener(*health_address(address), pages, what="health", to_all=True)
    await listener.open()
    try:
        yield listener.url
    finally:
        await listener.close()


def _page(trouble: Callable[[], str | None]) -> Callable[[], Awaitable[Answer]]:
    async def page() -> Answer:
        said = trouble()
        status = "200 OK" if said is None else "503 Service Unavailable"
        body = msgspec.json.encode({"status": said or "ok"}).decode()
        return Answer(body, "application/json", status)

    return page
