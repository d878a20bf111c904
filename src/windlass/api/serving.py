"""`windlass serve`: checks the options before the server listens, and says how the server is reached."""

import asyncio
import base64
import logging
import os
import socket
import tempfile
from collections.abc import Callable

import msgspec

from windlass import Windlass
from windlass.admin.server_secret import derived
from windlass.admin.service import Service
from windlass.api.hosts import is_address, is_loopback
from windlass.api.options import ProcessArguments, ServeOptions
from windlass.api.processes import Processes
from windlass.api.socket_server import BACKLOG
from windlass.errors import InvalidOption
from windlass.observe.listener import why_not_listening
from windlass.observe.together import FOLDER_VARIABLE
from windlass.worker.opening import when_store_answers

_log = logging.getLogger("windlass.api")

_TOKEN_BYTES = 24


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """How a server that has started is reached."""

    app: str
    address: str
    url: str
    """The address; while there are no API keys, with the token, for a browser."""
    token: str | None = None
    """What callers show while there are no API keys."""
    needs_keys: bool
    """Whether callers show an API key."""


def serve(
    name: str,
    app: Windlass,
    options: ServeOptions,
    *,
    workers: int,
    tell: Callable[[ServerAddress], None],
    waits: bool = True,
) -> int:
    """Answer requests until stopped; the exit code. `InvalidOption` says why it cannot start.

    `tell` is called once the server listens. A store that is down is waited for, if it `waits`: the store
    says whether there are keys, so nobody is answered before.
    """
    checked = asyncio.run(when_store_answers(lambda: _checked(app, options), waits=waits))
    if checked is None:
        return 0
    options = checked
    with (
        _listening(options) as listening,
        tempfile.TemporaryDirectory(prefix="windlass-serve-") as folder,
    ):
        if workers > 1:
            os.environ[FOLDER_VARIABLE] = folder  # its processes add up what they count
        arguments = ProcessArguments(app=name, options=options, folder=folder)
        _log.info("serving %s on %s", name, address_of(options))
        tell(_found(name, options))
        Processes(arguments, listening, workers).run()
    return 0


def address_of(options: ServeOptions) -> str:
    """Where a server is found."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"http://{host}:{options.port}"


def _found(name: str, options: ServeOptions) -> ServerAddress:
    address, token = address_of(options), None if options.require_keys else options.token
    url = address if token is None else f"{address}/?token={token}"
    return ServerAddress(app=name, address=address, url=url, token=token, needs_keys=options.require_keys)


async def _checked(app: Windlass, options: ServeOptions) -> ServeOptions:
    """The options with what the store adds to them: whether keys are needed, and else the token.

    Refuse to be reached by everybody, and a store that only this process would have.
    """
    try:
        service = await Service.of(app)
        service.check_shared("workers would not find what is enqueued here")
        has_keys = [key async for key in service.keys.all()] != []
        if not has_keys and not options.require_keys and not is_loopback(options.host):
            raise InvalidOption(
                f"without an API key this server is open to all who reach it, so it does not listen on "
                f"{options.host}; make a key first: windlass keys APP create --scope operate"
            )
        token = options.token
        if token is None and not options.trust_local:
            token = _token(await service.secret(), app.config.namespace)
        return msgspec.structs.replace(options, token=token, require_keys=options.require_keys or has_keys)
    finally:
        await app.aclose()


def _token(secret: bytes, namespace: str) -> str:
    """The token of a namespace: the same after a restart, and for all servers of the namespace."""
    return base64.urlsafe_b64encode(derived(secret, f"token:{namespace}")[:_TOKEN_BYTES]).decode()


def _listening(options: ServeOptions) -> socket.socket:
    """The socket at which all processes of the server accept connections."""
    if not is_address(options.host) and options.host != "localhost":
        raise InvalidOption(f'--host is an address, such as 127.0.0.1 or 0.0.0.0, not "{options.host}"')
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once (TCP_NODELAY).
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise InvalidOption(
            f"cannot listen on {options.host}:{options.port}: {why_not_listening(error)}"
        ) from None
    return listening
