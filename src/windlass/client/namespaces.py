"""An app in its namespaces: a branch for each, which shares its tasks and has ids and a store of its own."""

import copy
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import msgspec

from windlass.bridges.declared import Intake, Relay
from windlass.broker.contract import Broker
from windlass.broker.registry import beside
from windlass.client.connection import Connection
from windlass.client.declared import Declared
from windlass.client.elsewhere import found_in, namespace_of
from windlass.clock import Clock
from windlass.config import EVENTS_KEPT_FOR_RELAYS, Config
from windlass.core.enqueuer import Enqueuer, header_of
from windlass.core.event import Emit
from windlass.core.ids import JobIds, namespace_tag
from windlass.core.names import check_app, check_namespace
from windlass.core.option import shown, whole
from windlass.core.settings import Kind, Subject
from windlass.core.units import JobId
from windlass.core.webhook import DELIVERIES
from windlass.core.webhook import QUEUE as WEBHOOKS
from windlass.errors import InvalidOption, JobNotFound
from windlass.forks import renew_after_fork

if TYPE_CHECKING:
    from windlass.values.values import Values


class Namespaces:
    """The app as it was made (`home`), and its branches in other namespaces."""

    home: Self
    """The app as it was made. What it has in other namespaces are branches, which share its tasks."""
    namespaces: dict[str, Self]
    """This app in each of its namespaces, its own first."""

    def __init__(self, config: Config, *, name: str, revision: int, clock: Clock | None) -> None:
        self.name = check_app(name)
        self.revision = whole(revision, name="revision", least=0, most=2**31)
        self._clock = clock
        self.home = self
        self._as_given = config
        """The settings as they were given: what a relay changes of them is its namespace's alone."""
        self._enter(config)
        self.namespaces = {self.config.namespace: self}
        self._places: dict[str, Self] = {}
        """The queues that were named, and the app in the namespace of each."""

    def _enter(self, config: Config) -> None:
        """Make what the app has of its own in each namespace: declarations, a store, and a source of ids."""
        self.config: Config = config
        read = config.history is not None or config.webhooks
        self._declared = Declared(self.name, self.revision, emit=Emit.FINAL if read else None)
        self.intakes: dict[str, Intake] = {}
        """Where jobs of this namespace are taken from, by name."""
        self.relays: dict[str, Relay] = {}
        """Where the ends of its jobs are told, by name."""
        self.enqueuer: Mapping[str, str] = (
            {} if config.history is None else header_of(Enqueuer(app=self.name, host=socket.gethostname()))
        )
        """The header by which history knows who enqueued a job; none without history."""
        self.connection = Connection(config, self._declared, self._clock)
        self.new_id = JobIds(
            lambda: time.time_ns() // 1_000_000,
            os.urandom,
            lock=threading.RLock,
            tag=namespace_tag(config.namespace),
        )
        renew_after_fork(self)

    def _use_webhooks(self) -> None:
        """Declare the queue that delivers webhooks, if the app has any."""
        if self.config.webhooks:
            self._declared.put(Subject(Kind.QUEUE, WEBHOOKS), DELIVERIES)

    def _read_events(self) -> None:
        """Let queues write to the event log that do not say whether they do, and let the store keep more of
        it than it would: a relay reads it, and its message broker may be away for a while.
        """
        self._declared.emit_by_default(Emit.FINAL)
        if self.config.events_kept is None:
            self.config = msgspec.structs.replace(self.config, events_kept=EVENTS_KEPT_FOR_RELAYS)
            self.connection.configure(self.config)

    @property
    def values(self) -> "Values | None":
        """The URL of the object storage for large payloads and results. None: they stay in the store."""
        return self.connection.values

    def renew(self) -> None:
        """In the child of a fork: draw other ids than the parent."""
        self.new_id.reseed()

    def within(self, namespace: str) -> Self:
        """The same app in another of its namespaces: with the jobs, flows, worker and store of that
        namespace.
        """
        found = self.namespaces.get(namespace)
        if found is None:
            raise InvalidOption(
                f"no queue of this app is in namespace {shown(namespace)}; its namespaces: "
                f"{', '.join(self.namespaces)}; one more comes with app.queue(..., namespace=...)"
            )
        return found

    def place_of(self, queue: str) -> Self:
        """The app in the namespace of a queue; its own for a queue that it never named."""
        return self._places.get(queue, self.home)

    def _place(self, queue: str, namespace: str | None) -> Self:
        """Where a queue is to be; the place is made if it is new."""
        known = self._places.get(queue)
        if namespace is None:
            return known or self.home
        wanted = self.namespaces.get(check_namespace(namespace))
        if known is not None and known is not wanted:
            raise InvalidOption(
                f'queue "{queue}" is in namespace "{known.config.namespace}" already: say '
                f'namespace="{namespace}" where the queue is first named, or use another name'
            )
        return wanted or self._branch(namespace)

    def _branch(self, namespace: str) -> Self:
        """The same app in one more namespace: tasks are shared, ids, declarations and store its own."""
        config = self.home._as_given  # noqa: SLF001 - one of our own
        if config.front is not None:
            raise InvalidOption(
                f"a front door serves one namespace: this app has front= and is of {config.namespace}, so no "
                f"queue of it can be in {namespace}; use an app for each"
            )
        branch = copy.copy(self.home)
        branch._enter(  # noqa: SLF001 - one of our own
            msgspec.structs.replace(config, namespace=namespace, url=beside(config.url, namespace))
        )
        for observer in self.home.connection.observers:
            branch.connection.observe(observer)
        branch._use_webhooks()  # noqa: SLF001 - likewise
        self.namespaces[namespace] = branch
        return branch

    def _tagged(self, name: str) -> Self:
        """Where an id says that it was made."""
        return self.namespaces[namespace_of(name, self.config.namespace, self.namespaces)]

    async def find(self, job: JobId) -> Self | None:
        """The app in that other of its namespaces which keeps a job."""
        for place in self.namespaces.values():
            if place is not self and (await (await place.broker()).get([job]))[0] is not None:
                return place
        return None

    async def not_known(self, job: JobId) -> JobNotFound:
        """The error for a job that the store has no record of here; it names the namespace that has."""
        place = await self.find(job)
        if place is None:
            return await self.connection.not_known(job)
        return found_in(place.config, self.config, job)

    async def broker(self) -> Broker:
        """The store for the running loop, with all queues, tasks and schedules declared."""
        return await self.connection.broker()
