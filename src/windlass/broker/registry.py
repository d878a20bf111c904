"""Which broker a URL names.

The stores of Windlass are in a fixed table. Another package brings one by an entry point of the group
`windlass.brokers`, named as its URLs begin: an `Opener`. Only a setting can say such a URL. Nothing that a
message or a document says decides what is imported.
"""

import contextlib
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.resources import files
from urllib.parse import urlsplit

from windlass.broker.contract import Broker, Options
from windlass.clock import Clock
from windlass.core.units import JobId
from windlass.errors import InvalidOption
from windlass.extras import needed
from windlass.plugins import brings, names
from windlass.plugins import load as load_plugin

GROUP = "windlass.brokers"
"""The entry points of stores that other packages bring."""
Opener = Callable[[str, Options, Clock | None], Awaitable[Broker]]
"""Opens the store of a URL. A clock is for tests: without one the store's own counts."""


async def _memory(_url: str, options: Options, clock: Clock | None) -> Broker:
    from windlass.broker.memory import MemoryBroker  # noqa: PLC0415 - see _OPENERS

    return MemoryBroker(clock=clock, options=options)


async def _sqlite(url: str, options: Options, clock: Clock | None) -> Broker:
    from windlass.broker.sqlite import SqliteBroker, read_url  # noqa: PLC0415 - see _OPENERS

    place = read_url(url)
    return await SqliteBroker.open(place.path, clock=clock, options=options, lock_timeout=place.lock_timeout)


async def _redis(url: str, options: Options, clock: Clock | None) -> Broker:
    try:
        from windlass.broker.redis import RedisBroker  # noqa: PLC0415 - see _OPENERS
    except ModuleNotFoundError as missing:
        raise InvalidOption(needed("this store", missing, "windlass-queue[redis]")) from missing

    return await RedisBroker.open(url, clock=clock, options=options)


_REDIS = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")


async def _postgres(url: str, options: Options, clock: Clock | None) -> Broker:
    try:
        from windlass.broker.postgres import PostgresBroker, read_url  # noqa: PLC0415 - see _OPENERS
    except ModuleNotFoundError as missing:
        raise InvalidOption(needed("this store", missing, "windlass-queue[postgres]")) from missing

    return await PostgresBroker.open(read_url(url), clock=clock, options=options)


# Each opener imports its store when it is first asked for: an extra is needed only by those who use it.
_OPENERS: dict[str, Opener] = {
    "memory": _memory,
    "sqlite": _sqlite,
    **dict.fromkeys(_REDIS, _redis),
    "postgres": _postgres,
    "postgresql": _postgres,
}


_MODULES: dict[str, tuple[str, ...]] = {
    "memory": ("windlass.broker.memory",),
    "sqlite": ("windlass.broker.sqlite", "encodings.unicode_escape"),
    **dict.fromkeys(_REDIS, ("windlass.broker.redis", "encodings.idna")),
    **dict.fromkeys(
        ("postgres", "postgresql"), ("windlass.broker.postgres", "encodings.idna", "importlib.util")
    ),
}
"""What opens a store, and what that imports only when it is first used."""


def load(url: str) -> None:
    """Import what opens the store of a URL. Else some thread would do so when it is first used, and the child
    of a fork in that very moment would have half a module for ever. What is missing is told by `open_broker`.
    """
    with contextlib.suppress(ImportError, InvalidOption):
        scheme = urlsplit(url).scheme
        for module in _MODULES.get(scheme, ()):
            import_module(module)
        if scheme not in _OPENERS and brings(GROUP, scheme):
            load_plugin(GROUP, scheme)
        files(__package__ or "windlass")  # it imports what reads the files of a package, likewise


_ANY_LOOP = frozenset({"memory", "sqlite", *_REDIS})


def check_url(url: str) -> str:
    """Refuse a URL that no store is known for."""
    scheme = urlsplit(url).scheme
    if scheme not in _OPENERS and not brings(GROUP, scheme):
        known = ", ".join(f"{name}://" for name in sorted({*_OPENERS, *names(GROUP)}))
        if "://" not in url:
            raise InvalidOption(f"a store is named by a URL, such as sqlite:///windlass.db; known: {known}")
        # The rest of a URL may carry a password, so it is never shown.
        raise InvalidOption(f'no store is known for a URL that starts with "{scheme}:"; known: {known}')
    return url


def serves_any_loop(url: str) -> bool:
    """Whether one broker for this URL serves every thread and event loop of the process."""
    return urlsplit(url).scheme in _ANY_LOOP


def beside(url: str, namespace: str) -> str:
    """Where another namespace is kept beside that of a URL: on the same server, or in a file of its own,
    `windlass.mail.db` for `windlass.db`.
    """
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        return url
    folder, slash, file = parts.path.rpartition("/")
    stem, dot, ending = file.rpartition(".")
    name = f"{stem}.{namespace}.{ending}" if dot and stem else f"{file}.{namespace}"
    query = f"?{parts.query}" if parts.query else ""
    return f"sqlite://{folder}{slash}{name}{query}"


async def find_namespace(url: str, here: str, job: JobId) -> str | None:
    """Which other namespace of the same store keeps a job; None: none that is known, or a store that lists
    none.
    """
    if urlsplit(url).scheme not in _REDIS:
        return None
    from windlass.broker.redis.namespaces import find_namespace as find  # noqa: PLC0415 - see _OPENERS

    return await find(url, here, job)


async def open_broker(url: str, *, options: Options | None = None, clock: Clock | None = None) -> Broker:
    """Open the broker that a URL names. A clock is for tests: by default the store's own counts."""
    scheme = urlsplit(check_url(url)).scheme
    opener: Opener = _OPENERS.get(scheme) or load_plugin(GROUP, scheme)
    return await opener(url, options or Options(), clock)
