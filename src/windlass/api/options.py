"""What a server is started with."""

import msgspec

DEFAULT_PORT = 8700


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `windlass serve`."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    """Names under which the server may be asked, besides localhost and addresses."""
    secure: bool = False
    """Whether it stands behind TLS: cookies are then for TLS alone."""
    rate: int = 2_000
    """Requests a second that one caller may send to one process, with a burst of as many."""
    connections: int = 2_000
    """Connections that one process keeps at once."""
    body_timeout: float = 10.0
    """Seconds in which a body has to arrive."""
    waiting: int = 1_000
    """Long polls that one process keeps at once; of these one caller has half at the most."""
    sweep: bool = True
    """Whether this server sweeps the store, as workers do."""
    require_keys: bool = False
    """Whether nobody is let in while the store has no API keys."""
    token: str | None = None
    """What callers show while there are no API keys; None: without keys nobody is let in."""
    trust_local: bool = False
    """Whether, without keys, everybody who reaches the loopback address is let in."""


class ProcessArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a server process is told."""

    app: str
    options: ServeOptions
    folder: str
    """Of the processes of this server, for what they tell each other."""
