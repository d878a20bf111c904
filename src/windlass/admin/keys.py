"""API keys: made, listed, revoked, and told apart by the server. Only hashes are kept.

A key is `windlass_<id>_<secret>`. The id names its record; the secret has 256 random bits, so one round of
SHA-256 protects it as well as a slow hash would, and costs an honest request nothing.
"""

import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from windlass.admin.queues import Queues
from windlass.admin.reading import documents, store_time
from windlass.admin.views import moment
from windlass.broker.contract import Broker
from windlass.core.names import check_lane, check_queue
from windlass.core.option import shown
from windlass.core.settings import Change, Changed, Document, Kind, Subject
from windlass.core.units import Micros
from windlass.errors import InvalidOption, StoreError

PREFIX = "windlass"
LONGEST_LABEL = 100
MOST_BOUND = 1_000
"""Queues, or lanes, that a key may be bound to."""
_ID_BYTES = 6
_SECRET_BYTES = 32
_TRIES = 5


class Scope(StrEnum):
    """What a key may do. Each stands for itself, but that who operates may read."""

    ENQUEUE = "enqueue"
    READ = "read"
    WORK = "work"
    OPERATE = "operate"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a key."""

    id: str
    label: str
    digest: str
    scopes: frozenset[Scope]
    queues: frozenset[str] | None = None
    """None: all of them."""
    lanes: frozenset[str] | None = None
    created_at: Micros
    expires_at: Micros | None = None
    revoked_at: Micros | None = None

    def is_valid(self, now: Micros) -> bool:
        """Whether it opens anything at this time of the store."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def __repr__(self) -> str:
        return f"<Key {self.id}>"


class KeyShown(msgspec.Struct, frozen=True, kw_only=True):
    """A key for people and programs."""

    id: str
    label: str
    state: str
    """valid, expired or revoked."""
    scopes: tuple[str, ...]
    queues: tuple[str, ...] | None
    lanes: tuple[str, ...] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a key is to be good for."""

    label: str = ""
    scopes: Sequence[str]
    queues: Sequence[str] = ()
    lanes: Sequence[str] = ()
    expires: Micros | None = None
    """From now."""


def check_new_key(wanted: NewKey) -> frozenset[Scope]:
    """The scopes of a key, if one can be made as it is wanted."""
    scopes: set[Scope] = set()
    for name in wanted.scopes:
        if name not in Scope.__members__.values():
            raise InvalidOption(f"there is no scope {shown(name)}; scopes are: {', '.join(Scope)}")
        scopes.add(Scope(name))
    if not scopes:
        raise InvalidOption(f"a key needs a scope at least; scopes are: {', '.join(Scope)}")
    for queue in wanted.queues:
        check_queue(queue)
    for lane in wanted.lanes:
        check_lane(lane)
    if max(len(wanted.queues), len(wanted.lanes)) > MOST_BOUND:
        raise InvalidOption(f"a key can be bound to at most {MOST_BOUND:,} queues and as many lanes")
    if wanted.lanes and Scope.WORK in scopes:
        # A claim asks for queues; whose turn it is among their lanes is the store's to say.
        raise InvalidOption(
            "a key with scope work cannot be bound to lanes, since workers claim from whole queues; "
            "bind it to queues"
        )
    if len(wanted.label) > LONGEST_LABEL or not wanted.label.isprintable():
        raise InvalidOption(f"a label has at most {LONGEST_LABEL} printable characters")
    if wanted.expires is not None and wanted.expires <= 0:
        raise InvalidOption("a key must be valid for longer than nothing")
    return frozenset(scopes)


def digest_of(secret: str) -> str:
    """The digest of a secret: the store keeps no more of it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def split_key(text: str) -> tuple[str, str] | None:
    """The id and the secret of a key; None if it does not look like one."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    return (key_id, secret) if prefix == PREFIX and key_id and secret else None


_NOBODY = digest_of(secrets.token_hex())


def fits(key: Key | None, secret: str) -> bool:
    """Whether a secret is that of a key, in a time that does not tell how much of it was right, nor whether
    there is such a key.
    """
    wanted = _NOBODY if key is None else key.digest
    return hmac.compare_digest(wanted, digest_of(secret)) and key is not None


class Keys:
    """The keys of one namespace."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def create(self, wanted: NewKey) -> tuple[str, KeyShown]:
        """Make a key: its text, which is shown this once, and its record."""
        scopes = check_new_key(wanted)
        for queue in wanted.queues:
            await Queues(self._broker).check(queue)
        now = await store_time(self._broker)
        for _ in range(_TRIES):
            key_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
            key = Key(
                id=key_id,
                label=wanted.label,
                digest=digest_of(secret),
                scopes=scopes,
                queues=frozenset(wanted.queues) or None,
                lanes=frozenset(wanted.lanes) or None,
                created_at=now,
                expires_at=None if wanted.expires is None else now + wanted.expires,
            )
            if (await self._put(key, 0)).change is Change.APPLIED:
                return f"{PREFIX}_{key_id}_{secret}", key_shown(key, now)
        raise StoreError("no key could be kept; try again")

    async def all(self) -> AsyncIterator[Key]:
        """Every key, also those that are good for nothing any more."""
        async for document in documents(self._broker, Kind.KEY):
            if (key := _read(document)) is not None:
                yield key

    async def shown(self) -> list[KeyShown]:
        """Every key for people, the newest first."""
        now = await store_time(self._broker)
        found = [key_shown(key, now) async for key in self.all()]
        return sorted(found, key=lambda key: key.created_at, reverse=True)

    async def revoke(self, key_id: str) -> KeyShown:
        """Make a key good for nothing. Its record stays: a server without any key would be open to all who
        reach it.
        """
        for _ in range(_TRIES):
            document, key = await self._find(key_id)
            now = await store_time(self._broker)
            if key.revoked_at is not None:
                return key_shown(key, now)
            revoked = msgspec.structs.replace(key, revoked_at=now)
            if (await self._put(revoked, document.version)).change is Change.APPLIED:
                return key_shown(revoked, now)
        raise StoreError(f"key {key_id} keeps changing; try again")

    async def _find(self, key_id: str) -> tuple[Document, Key]:
        async for document in documents(self._broker, Kind.KEY):
            key = _read(document)
            if key is not None and key.id == key_id:
                return document, key
        raise InvalidOption(f"there is no key {shown(key_id)}; see: windlass keys APP list")

    async def _put(self, key: Key, expect: int) -> Changed:
        return await self._broker.override(Subject(Kind.KEY, key.id), msgspec.json.encode(key), expect)


def _read(document: Document) -> Key | None:
    if not isinstance(document.override, bytes):
        return None
    try:
        return msgspec.json.decode(document.override, type=Key)
    except msgspec.MsgspecError:
        return None  # of another version, or no key: it opens nothing


def key_shown(key: Key, now: Micros) -> KeyShown:
    """A key as operators see it."""
    state = "revoked" if key.revoked_at is not None else "valid" if key.is_valid(now) else "expired"
    return KeyShown(
        id=key.id,
        label=key.label,
        state=state,
        scopes=tuple(sorted(key.scopes)),
        queues=None if key.queues is None else tuple(sorted(key.queues)),
        lanes=None if key.lanes is None else tuple(sorted(key.lanes)),
        created_at=moment(key.created_at),
        expires_at=None if key.expires_at is None else moment(key.expires_at),
        revoked_at=None if key.revoked_at is None else moment(key.revoked_at),
    )
