"""What went wrong between here and a server, in a line that names a fix. Never a password or a payload."""

import socket
import ssl
from pathlib import Path
from typing import Final

from redis import exceptions

from windlass.broker.redis.url import Address, Location
from windlass.errors import StoreError, StoreUnavailable

UNREACHABLE: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)
"""What says that no answer came, rather than which."""
_TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


_PASSING: Final = {
    "NOREPLICAS": "has fewer replicas than it wants before it takes writes (min-replicas-to-write); "
    "see that they run and follow it, or lower the number",
    "BUSY": "is busy with a script of some client; see which, or end it with SCRIPT KILL",
    "MISCONF": "cannot write to its disk, and takes no writes until it can (MISCONF); make room, see its log",
}
"""What a server says that may pass by itself, and that the driver has no kind of its own for."""


class BrokenLink(StoreUnavailable):
    """A connection that had worked broke: perhaps the server closed it long ago."""


def complaint(
    error: BaseException,
    location: Location,
    address: Address | None,
    *,
    used: bool = False,
    said: exceptions.RedisError | None = None,
) -> StoreError:
    """The error for the caller. `StoreUnavailable`: trying again may help. `used`: the connection had worked
    before. `said`: why the server had put the caller off until the time was over.
    """
    if said is not None and isinstance(error, TimeoutError):
        return delay(said)
    server = f"the Redis server at {shown(location, address)}"
    root = _root(error)
    if isinstance(root, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return StoreError(_stranger(server, location))
    match error:
        case exceptions.BusyLoadingError():
            return StoreUnavailable(f"{server} is loading its data; try again when it has")
        case exceptions.MaxConnectionsError():
            return StoreUnavailable(f"{server} has as many clients as it takes; raise its maxclients")
        case exceptions.RedisError() if not isinstance(error, UNREACHABLE):
            return refusal(error)
        case _:
            pass
    if isinstance(root, ssl.SSLError):
        return StoreError(_tls(root, server))
    if isinstance(root, FileNotFoundError) and location.tls:
        return StoreError(_missing_file(location, server))
    words = _away(root, server, location, used=used)
    if words is not None:
        return StoreUnavailable(words)
    unknown = f"{server} did not answer: {type(root).__name__}"
    return BrokenLink(unknown) if used else StoreUnavailable(unknown)


def refusal(error: exceptions.RedisError) -> StoreError:
    """The error for what a server answered."""
    text = str(error)
    if is_full(error):
        return StoreError(
            "the Redis server is at its memory limit (maxmemory): drain queues, or raise the limit"
        )
    if isinstance(error, exceptions.AuthenticationError):
        return StoreError(
            f"the Redis server refused the login: {text}; check user and password of the URL, and the ACL"
        )
    if isinstance(error, exceptions.NoPermissionError) or "ACL failure" in text or "NOPERM" in text:
        return StoreError(
            f"the Redis user lacks a right: {text}; docs/redis.md lists the least rights of a namespace"
        )
    if "DB index is out of range" in text:
        return StoreError("the Redis server has no database of that number; change it at the end of the URL")
    return StoreError(f"the Redis server answered with an error: {text}")


def delay(error: exceptions.RedisError) -> StoreUnavailable:
    """The error if a server has answered the same for as long as one call may take."""
    match error:
        case exceptions.BusyLoadingError():
            return StoreUnavailable("the Redis server is loading its data; try again when it has")
        case exceptions.MasterDownError():
            return StoreUnavailable(
                "the Redis server is a replica that has lost its primary (MASTERDOWN); see that the primary "
                "runs, and name it in the URL"
            )
        case exceptions.RedisError() if is_no_primary(error):
            return StoreUnavailable(
                "the Redis server is a replica and takes no writes (READONLY); name its primary in the URL, "
                "or let Sentinel find it: redis+sentinel://host:26379/name"
            )
        case exceptions.ClusterDownError():
            return StoreUnavailable("the Redis cluster is down: no node has the slot of this namespace")
        case exceptions.MovedError():
            return StoreUnavailable(
                "the nodes of the Redis cluster redirect to each other; see that the URL is redis+cluster://"
            )
        case exceptions.TryAgainError():
            return StoreUnavailable("the Redis server moves the data of this namespace; try again later")
        case _:
            code = _passing(error)
            words = f"answers with an error: {error}" if code is None else _PASSING[code]
            return StoreUnavailable(f"the Redis server {words}")


def may_pass(error: exceptions.RedisError) -> bool:
    """Whether the same server may answer otherwise in a moment."""
    said = isinstance(error, (exceptions.TryAgainError, exceptions.BusyLoadingError))
    return said or _passing(error) is not None


def _passing(error: exceptions.RedisError) -> str | None:
    """Redis 6.2 wraps what a command inside a script answered."""
    text = str(error)
    for code in _PASSING:
        if text.startswith(f"{code} ") or f"-{code} " in text:
            return code
    return None


def is_no_primary(error: exceptions.RedisError) -> bool:
    """Redis 6.2 lets a script begin on a replica, and wraps what its first write answered."""
    said = isinstance(error, (exceptions.ReadOnlyError, exceptions.MasterDownError))
    return said or "-READONLY" in str(error)


def is_full(error: exceptions.RedisError) -> bool:
    """Redis 6.2 wraps what a command inside a script answered."""
    return isinstance(error, exceptions.OutOfMemoryError) or "OOM command not allowed" in str(error)


def shown(location: Location, address: Address | None) -> str:
    """A server, without user and password."""
    if location.options.get("unix"):
        return str(location.options.get("path", ""))
    host, port = address or (location.options.get("host", "localhost"), location.options.get("port", 6379))
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _root(error: BaseException) -> BaseException:
    """What the driver wrapped: a refused login, on a Unix socket, or an error of the system."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError | exceptions.AuthenticationError | exceptions.AuthorizationError):
            return inner
        inner = inner.__cause__ or inner.__context__
    return error


def _stranger(server: str, location: Location) -> str:
    if not location.options.get("password"):
        return f"{server} wants a password: put it into the URL, redis://user:password@host"
    user = location.options.get("username") or "default"
    return f'{server} refuses the user "{user}": user name or password is wrong; check the URL'


def _tls(error: ssl.SSLError, server: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        fix = "name a host that it is for" if "mismatch" in why else "name its CA: ?ssl_ca_certs=/path/ca.pem"
        return f"the certificate of {server} is not accepted: {why}; {fix}"
    reason = (error.reason or "").replace("_", " ").lower()
    if "wrong version" in reason or "record layer" in reason:
        return f"{server} does not speak TLS; a URL that begins with redis:// does without"
    if "alert" in reason or isinstance(error, ssl.SSLEOFError):
        return _ends_tls(server, reason or "without a reason")
    return f"TLS with {server} fails: {reason or type(error).__name__}; check the ssl_ options of the URL"


def _ends_tls(server: str, reason: str) -> str:
    return (
        f"{server} ends the TLS connection ({reason}); if it wants a client certificate: "
        "?ssl_certfile=/path/client.crt&ssl_keyfile=/path/client.key"
    )


def _missing_file(location: Location, server: str) -> str:
    files = [str(location.options[name]) for name in _TLS_FILES if location.options.get(name)]
    missing = [name for name in files if not Path(name).exists()]
    return f"for TLS with {server} the URL names files that do not exist: {', '.join(missing or files)}"


def _away(root: BaseException, server: str, location: Location, *, used: bool) -> str | None:
    """What is wrong with a server that does not answer, if that is known."""
    match root:
        case TimeoutError():
            hint = (
                "" if used or not location.tls else "; if it does not speak TLS, the URL begins with redis://"
            )
            return f"{server} did not answer within {location.timeout:g} s{hint}"
        case ConnectionRefusedError():
            return f"nothing listens where {server} should be; is it running? check host and port"
        case socket.gaierror():
            return f"{server}: the name of the host is not known; check the URL"
        case FileNotFoundError():
            return f"there is no socket of {server}; is it running? check the path of the URL"
        case PermissionError():
            return f"this process may not use the socket of {server}; see unixsocketperm of the server"
        case _ if not used and location.tls:
            return _ends_tls(server, "before it answered")
        case _ if not used and not location.options.get("unix"):
            return (
                f"{server} closed the connection before it answered; if it speaks TLS, the URL begins with "
                "rediss://"
            )
        case _:
            return None
