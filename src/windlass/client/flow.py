"""Flows: calls that wait for each other, written as a shape and sent together.

    chain(fetch.call(url), parse.call(), group(index.call(), thumb.call()), notify.call()).enqueue()

A chain runs its parts one after another, a group side by side; whatever comes behind a group in a chain waits
for all of it. A call may name parents of its own besides (`using(after=...)`, a call or a job), so any shape
without a circle can be written. A child reads what its parents returned with `current.results()`.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from windlass.client.flow_handle import Flow
from windlass.client.task import Call
from windlass.core.job import MAX_PARENTS, Edge, NewJob, check_new_job
from windlass.core.names import check_flow
from windlass.core.option import shown
from windlass.core.units import JobId
from windlass.errors import InvalidOption

if TYPE_CHECKING:
    from windlass.client.app import Windlass

Part: TypeAlias = "Call[Any] | Shape"


class Shape:
    """Calls with an order between them, not sent yet. Sent twice it is one flow: its calls keep their ids."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)

    def enqueue(self, *, flow: str | None = None, connection: object = None) -> Flow:
        """Send all calls, from blocking code. `flow` is the name of the flow; without it the flow gets an id.

        The store accepts up to 1,000 calls together or not at all. A larger flow is sent in groups of 1,000,
        parents first.
        """
        app, name, laid = self._laid(flow)
        return Flow(app, name, app.enqueue_many(laid.calls, connection=connection), laid.ends)

    async def aenqueue(self, *, flow: str | None = None, connection: object = None) -> Flow:
        """Async twin of `enqueue`."""
        app, name, laid = self._laid(flow)
        return Flow(app, name, await app.aenqueue_many(laid.calls, connection=connection), laid.ends)

    @property
    def namespace(self) -> str:
        """The namespace of its jobs."""
        return _app_of(self).config.namespace

    def jobs(self, flow: str = "") -> list[NewJob]:
        """The jobs of this flow, parents first."""
        return [call.job for call in self._laid(flow or None)[2].calls]

    def _laid(self, flow: str | None) -> "tuple[Windlass, str, _Laid]":
        app = _app_of(self)
        name = app.new_id() if flow is None else check_flow(flow)
        laid = _Laid(name)
        laid.ends = laid.lay(self, ())
        return app, name, laid


class Chain(Shape):
    """Parts that run one after another."""


class Group(Shape):
    """Parts that run side by side."""


def chain(*parts: Part) -> Chain:
    """Run parts one after another: calls, groups and chains."""
    return Chain([_part(part) for part in parts])


def group(*parts: "Part | Iterable[Part]") -> Group:
    """Run parts side by side: `group(index.call(), thumb.call())`, `group(thumb.call(u) for u in urls)`."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, Call | Shape):
            found.append(part)
        elif isinstance(part, list | tuple | Generator):
            found += [_part(each) for each in part]
        else:
            found.append(_part(part))
    return Group(found)


def _part(part: object) -> Part:
    if isinstance(part, Call | Shape):
        return part  # pyright: ignore[reportUnknownVariableType]
    raise InvalidOption(
        f"a flow is made of calls, as in send.call(...), chains and groups, not {shown(part)}"
    )


def _calls(part: Part) -> "Iterable[Call[Any]]":
    if isinstance(part, Call):
        yield part
        return
    for each in part.parts:
        yield from _calls(each)


def _app_of(shape: Shape) -> "Windlass":
    apps = {id(call.task.app): call.task.app for call in _calls(shape)}
    if not apps:
        raise InvalidOption("this flow has no call in it")
    if len(apps) > 1:
        names = sorted({app.config.namespace for app in apps.values()})
        if len(names) == 1:
            raise InvalidOption("the calls of a flow belong to one app: a flow lives in one namespace")
        raise InvalidOption(
            f"a flow lives in one namespace, and the calls of this one are in {', '.join(names)}; "
            "let a job of one namespace enqueue the rest in the other"
        )
    return next(iter(apps.values()))


class _Laid:
    """A shape, laid out as calls with edges."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._seen: set[JobId] = set()
        self.calls: list[Call[Any]] = []
        self.ends: tuple[JobId, ...] = ()

    def lay(self, part: Part, after: tuple[JobId, ...]) -> tuple[JobId, ...]:
        """Add a part behind some jobs; the jobs that whatever follows it has to wait for.

        A part with no call in it (a group over an empty list) is as if it were not there.
        """
        if isinstance(part, Call):
            return self._lay_call(part, after)
        if isinstance(part, Group):
            ends = [end for each in part.parts for end in self.lay(each, after)]
            return tuple(dict.fromkeys(ends)) or after
        for each in part.parts:
            after = self.lay(each, after)
        return after

    def _lay_call(self, call: Call[Any], after: tuple[JobId, ...]) -> tuple[JobId, ...]:
        job = call.job
        if job.id in self._seen:
            raise InvalidOption(
                f'the same call of "{job.task}" is twice in a flow; make another with {job.task}.call(...)'
            )
        self._seen.add(job.id)
        named = {edge.parent for edge in job.after}
        edges = job.after + tuple(
            Edge(parent, call.task.on_failure) for parent in after if parent not in named
        )
        if len(edges) > MAX_PARENTS:
            raise InvalidOption(
                f'the call of "{job.task}" would wait for {len(edges):,} jobs, and a job waits for at most '
                f"{MAX_PARENTS:,}: join them in several steps"
            )
        job = msgspec.structs.replace(job, after=edges, flow=job.flow or self._flow)
        self.calls.append(Call(call.task, check_new_job(job)))
        return (job.id,)
