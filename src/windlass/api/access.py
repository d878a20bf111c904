"""Who calls, and what they may do: scopes that every route declares, and what is out of sight.

    @get("/v1/queues", guards=[requires(Scope.READ)])

A key without the scope is told 403. What a key is not bound to does not exist for it: 404, in the words of
what really is not there.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler

from windlass.admin.keys import Key, Scope
from windlass.api.problems import CALLER, Refusal, not_found
from windlass.core.option import shown
from windlass.errors import InvalidOption

VISITOR = "windlass_visitor"
"""Where a request keeps whom another application has let in: a `Visitor`; None for who may not."""
MOST_NAME = 100
WANTED = "windlass_wanted"
"""Where the gate leaves what a request without a caller should have shown, or the refusal of a visitor."""
A_KEY = "a valid API key is needed: Authorization: Bearer windlass_…; make one with: windlass keys APP create"
THE_TOKEN = (
    "this server has no API keys, and needs the token that it printed when it started: Authorization: Bearer "
    "TOKEN; choose it with $WINDLASS_TOKEN or --token, or make a key: windlass keys APP create"
)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request, as far as the server can tell."""

    name: str
    """For records of who did what: `key <id>`, or `local`."""
    key: str | None = None
    """The id of the key; None for who has shown the token of a server without keys."""
    label: str = ""
    scopes: frozenset[Scope] = frozenset()
    queues: frozenset[str] | None = None
    lanes: frozenset[str] | None = None
    login: str | None = None
    """The cookie, of who has logged in."""
    is_visitor: bool = False
    """Whether another application has let it in."""

    @property
    def by_cookie(self) -> bool:
        """Whether its browser says who it is, whichever page makes it send something."""
        return self.login is not None

    @property
    def shown(self) -> str:
        """Its name for people: with the label that its key was given."""
        return f"{self.label} ({self.name})" if self.label and not self.is_visitor else self.name

    @property
    def is_bound(self) -> bool:
        """Whether anything is out of its sight."""
        return self.queues is not None or self.lanes is not None

    def may(self, *scopes: Scope) -> bool:
        """Whether it has one of the scopes. Who operates may read."""
        return any(
            scope in self.scopes or (scope is Scope.READ and Scope.OPERATE in self.scopes) for scope in scopes
        )

    def sees_queue(self, queue: str) -> bool:
        """Whether a queue is in sight: of one bound to lanes, the queue with those lanes alone."""
        return self.queues is None or queue in self.queues

    def sees_lane(self, lane: str) -> bool:
        """Whether a lane is in sight."""
        return self.lanes is None or lane in self.lanes

    def sees(self, queue: str, lane: str) -> bool:
        """Whether the jobs of a lane of a queue are in sight."""
        return self.sees_queue(queue) and self.sees_lane(lane)


LOCAL = Caller(name="local", scopes=frozenset(Scope))
"""Who shows the token of a server that has no keys."""


def caller_of(key: Key) -> Caller:
    """The caller that holds a key."""
    return Caller(
        name=f"key {key.id}",
        key=key.id,
        label=key.label,
        scopes=key.scopes,
        queues=key.queues,
        lanes=key.lanes,
    )


class Visitor:
    """A user whom the application has logged in, and what this user may do in the mounted dashboard. The
    audit log records the name with each action. Scopes are those of API keys, by default all.
    """

    def __init__(self, name: str, scopes: Iterable[str] | None = None) -> None:
        if not name or len(name) > MOST_NAME or not name.isprintable():
            raise InvalidOption(
                f"the name of a visitor has 1 to {MOST_NAME} printable characters: {shown(name)}"
            )
        known = [str(scope) for scope in Scope]
        wanted = (scopes,) if isinstance(scopes, str) else tuple(known if scopes is None else scopes)
        if unknown := [scope for scope in wanted if scope not in known]:
            raise InvalidOption(f"there is no scope {shown(unknown[0])}; scopes: {', '.join(known)}")
        self.caller = Caller(
            name=f"visitor {name}", label=name, scopes=frozenset(map(Scope, wanted)), is_visitor=True
        )


class Requires:
    """A guard: the caller needs one of the scopes; with `unbound`, a key that is bound to nothing."""

    def __init__(self, scopes: Sequence[Scope], *, unbound: bool = False) -> None:
        self.scopes = tuple(scopes)
        self.unbound = unbound

    async def __call__(self, connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        """Ask for it: 401 without a key, 403 without what is needed."""
        caller = present(connection.scope)
        if not caller.may(*self.scopes):
            wanted = " or ".join(self.scopes)
            raise Refusal(
                403, "forbidden", f"this needs a key with scope {wanted}; yours has {_said(caller)}"
            )
        if self.unbound and caller.is_bound:
            # It shows, or changes, what concerns every queue.
            raise Refusal(403, "forbidden", "this needs a key that is not bound to queues or lanes")


class Open(Requires):
    """A guard of what anybody may ask: health probes, the page of the dashboard, logging in."""

    def __init__(self) -> None:
        super().__init__(())

    async def __call__(self, connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        """Let everybody pass."""


def requires(*scopes: Scope, unbound: bool = False) -> Requires:
    """What a route declares: the scopes of which a caller needs one."""
    if not scopes:
        raise ValueError("a route requires a scope at least; what anybody may ask is OPEN")
    return Requires(scopes, unbound=unbound)


OPEN = Open()


def present(scope: Any) -> Caller:
    """The caller of a connection, if there is one; 401 if not, or what the gate says of it."""
    caller = scope["state"].get(CALLER)
    if isinstance(caller, Caller):
        return caller
    if isinstance(scope["state"].get(WANTED), Refusal):
        raise scope["state"][WANTED]
    raise Refusal(
        401,
        "unauthorized",
        scope["state"].get(WANTED, A_KEY),
        headers={"www-authenticate": "Bearer"},
    )


def declared(handler: BaseRouteHandler) -> Requires | None:
    """What a route declares; None if it declares nothing, which `server.build` refuses."""
    for guard in cast("Any", handler).resolve_guards():
        if isinstance(guard, Requires):
            return guard
    return None


def unseen_queue(queue: str) -> Refusal:
    """A queue that is not there, or not in sight."""
    return not_found(f'there is no queue "{queue}"', field="queue")


def _said(caller: Caller) -> str:
    return ", ".join(sorted(caller.scopes)) or "none"
