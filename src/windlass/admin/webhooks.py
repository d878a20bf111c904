"""Webhooks for operators: who is told of the ends of jobs, added and removed; the secrets of receivers."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from windlass.admin.queues import Queues
from windlass.admin.reading import documents, store_time
from windlass.admin.views import moment
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.address import allowed
from windlass.core.event import Emit
from windlass.core.names import check_webhook
from windlass.core.settings import Change, Document, Kind, QueueSettings, Subject
from windlass.core.units import SECOND
from windlass.core.webhook import (
    CALLBACKS,
    QUEUE,
    Hook,
    check_ends,
    check_reachable,
    check_target,
    decode_hook,
    receiver_secret,
    written_secret,
)
from windlass.errors import InvalidOption, StoreError
from windlass.worker.keyring import BOTH, keyring, replaced

_TRIES = 5


class HookShown(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told of the jobs of a queue."""

    name: str
    queue: str
    url: str
    """Without its path, which may hold a secret, unless that was asked for. Empty: jobs of the queue carry
    URLs of their own.
    """
    on: tuple[str, ...]
    by: str
    at: datetime | None


class ReceiverSecret(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver checks signatures with."""

    receiver: str
    """Scheme, host and port."""
    secret: str


class Rotated(msgspec.Struct, frozen=True, kw_only=True):
    """Every receiver has a new secret."""

    both_until: datetime
    """Messages are signed with the old ones as well until then."""


class Webhooks:
    """What can be seen of webhooks and done to them."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    async def all(self, *, whole: bool = False) -> list[HookShown]:
        """Every webhook, by name; `whole`: with paths."""
        found: list[HookShown] = []
        async for document in documents(self._broker, Kind.WEBHOOK):
            hook = _hook(document)
            if hook is not None:
                found.append(_shown(document.subject.name, hook, whole=whole))
        return found

    async def put(self, name: str, *, queue: str, url: str, on: Iterable[object], by: str) -> HookShown:
        """From now on, tell a URL of the jobs of a queue. This replaces an earlier webhook of the same name.
        If the queue does not write the events that are needed, it writes them from now on.
        """
        self._check_used()
        if check_webhook(name).startswith(CALLBACKS):
            raise InvalidOption(f'the name of a webhook must not begin with "{CALLBACKS}"')
        check_reachable(check_target(url), allowed(self._app.config.webhook_allow))
        await Queues(self._broker).check(queue)
        if queue == QUEUE:
            raise InvalidOption(f'queue "{QUEUE}" delivers webhooks; it cannot have some of its own')
        hook = Hook(queue=queue, url=url, on=check_ends(on), by=by, at=await store_time(self._broker))
        await self._let_emit(queue)
        subject = Subject(Kind.WEBHOOK, name)
        for _ in range(_TRIES):
            before = await self._document(name)
            version = 0 if before is None else before.version
            changed = await self._broker.override(subject, msgspec.json.encode(hook), version)
            if changed.change is not Change.CONFLICT:
                return _shown(name, hook, whole=False)
        raise StoreError(f'webhook "{name}" keeps changing; try again')

    async def remove(self, name: str) -> None:
        """Tell nobody any more; what is on its way is delivered. `InvalidOption` names those there are."""
        for _ in range(_TRIES):
            document = await self._document(name)
            if document is None or document.override is None:
                names = ", ".join(hook.name for hook in await self.all() if hook.url) or "none"
                raise InvalidOption(f'there is no webhook "{name}"; webhooks: {names}')
            changed = await self._broker.override(document.subject, None, document.version)
            if changed.change is not Change.CONFLICT:
                return
        raise StoreError(f'webhook "{name}" keeps changing; try again')

    async def secret(self, url: str) -> ReceiverSecret:
        """What the receiver of a URL checks signatures with."""
        target = check_target(url)
        ring = await keyring(self._broker)
        made = written_secret(receiver_secret(ring.current, target))
        return ReceiverSecret(receiver=target.origin, secret=made)

    async def rotate(self) -> Rotated:
        """Give every receiver a new secret. For a day messages are signed with both."""
        now = await store_time(self._broker)
        await replaced(self._broker, now)
        return Rotated(both_until=moment(now + BOTH // SECOND * SECOND))

    # --- parts ----------------------------------------------------------------------------------------------

    def _check_used(self) -> None:
        if not self._app.config.webhooks:
            raise InvalidOption(
                "this app has no webhooks: Windlass(webhooks=True) or WINDLASS_WEBHOOKS=true, for workers too"
            )

    async def _let_emit(self, queue: str) -> None:
        shown = await Queues(self._broker).one(queue)
        if shown.settings.get("emit", Emit.NONE) == Emit.NONE:
            await Queues(self._broker).override(queue, QueueSettings(emit=Emit.FINAL))

    async def _document(self, name: str) -> Document | None:
        async for document in documents(self._broker, Kind.WEBHOOK):
            if document.subject.name == name:
                return document
        return None


def _hook(document: Document) -> Hook | None:
    return decode_hook(document.override) or decode_hook(document.declared)


def _shown(name: str, hook: Hook, *, whole: bool) -> HookShown:
    url = hook.url
    if url and not whole:
        url = f"{check_target(url).origin}/…"
    return HookShown(
        name=name,
        queue=hook.queue,
        url=url,
        on=hook.on,
        by=hook.by,
        at=moment(hook.at) if hook.at else None,
    )
