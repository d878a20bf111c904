"""One call of a script, as what is said to the server and what its answers mean. Pure: both transports hold
the same conversation.

A server may not know the script (`SCRIPT FLUSH`, a failover), be another one than the slot's (`MOVED`,
`ASK`), be moving the slot (`TRYAGAIN`), be loading, be no primary any more, or take no writes for a while
(`NOREPLICAS`, `MISCONF`, `BUSY`). Of a slot that has just moved
two nodes may each say that the other has it, until they have heard of each other.
"""

from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeVar

from redis import exceptions

from windlass.broker.redis.complaints import delay, is_full, is_no_primary, may_pass, refusal
from windlass.broker.redis.scripts import script
from windlass.broker.redis.url import Address
from windlass.broker.redis.verbs import ScriptCall
from windlass.errors import StoreUnavailable

_T = TypeVar("_T")
Command = tuple[bytes | str | int, ...]
TRIES: Final = 20
FIRST_PAUSE: Final = 0.005
LONGEST_PAUSE: Final = 0.25
AT_ONCE: Final = 2
"""Redirections that a call follows without a pause: to the node that has the slot, or from there to the one
that it is moving to. A call that is sent on again is sent in a circle.
"""


class Send(NamedTuple):
    """Send commands and give back the reply to the last, be it an error."""

    commands: tuple[Command, ...]
    to: Address | None = None
    """Not the usual server: the one that a slot is moving to. Without a host: that of the usual one."""


class Pause(NamedTuple):
    """Wait so many seconds."""

    seconds: float


class ConnectTo(NamedTuple):
    """From now on talk to this server, on the same host if it names none; None: find out anew which."""

    to: Address | None


Step = Send | Pause | ConnectTo
Talk = Generator[Step, Any, _T]


def converse(
    call: ScriptCall[_T], keys: tuple[bytes, ...], context: bytes, wait: int, timeout: float
) -> Talk[_T]:
    """The conversation about one call."""
    known = script(call.script)
    rest = (len(keys), *keys, context, *call.args)
    command: Command = (b"EVALSHA", known.sha, *rest)
    pause = FIRST_PAUSE
    to: Address | None = None
    last: Any = None
    redirected = 0
    to_confirm = wait > 0 and call.script in ("enqueue", "fire", "take")
    for _ in range(TRIES):
        asking: tuple[Command, ...] = ((b"ASKING",),) if to is not None else ()
        reply = yield Send((*asking, command), to)
        to, last = None, reply
        if not isinstance(reply, exceptions.RedisError):
            if to_confirm:
                yield from _confirmed(wait, timeout)
            return call.read(reply)
        match reply:
            case exceptions.NoScriptError():
                command = (b"EVAL", known.text, *rest)
            case exceptions.AskError():  # to the driver, MOVED is a kind of it
                redirected += 1
                to = yield from _sent_on(reply, redirected, pause, stays=to_confirm)
            case _ if is_no_primary(reply) or isinstance(reply, exceptions.ClusterDownError):
                yield Pause(pause)
                yield ConnectTo(None)
            case _ if may_pass(reply):
                yield Pause(pause)
            case _ if call.full is not None and is_full(reply):
                return call.full()
            case exceptions.AuthenticationError():
                yield ConnectTo(None)  # the next call logs in anew
                raise refusal(reply)
            case _:
                raise refusal(reply)
        pause = min(2 * pause, LONGEST_PAUSE)
    raise delay(last)


def _sent_on(error: Any, turn: int, pause: float, *, stays: bool) -> Talk[Address | None]:
    """Follow a redirection: for good, or once, to the server that is returned. A call that `stays` waits
    until there is one for good: a server tells what its replicas have on the connection of the write alone.
    """
    has_moved = isinstance(error, exceptions.MovedError)
    if turn > AT_ONCE or (stays and not has_moved):
        yield Pause(pause)
    to = str(error.host), int(error.port)
    if has_moved:
        yield ConnectTo(to)
    return None if has_moved or stays else to


def _confirmed(wait: int, timeout: float) -> Talk[None]:
    """Replicas that have the write. Resending is safe: the ids are known."""
    reply = yield Send(((b"WAIT", wait, int(timeout * 500)),))
    if not isinstance(reply, int) or reply < wait:
        raise StoreUnavailable(f"fewer than {wait} replicas confirmed the enqueue in time")
