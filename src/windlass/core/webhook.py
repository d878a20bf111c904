"""Webhooks: whom to tell of the end of a job, what they are told, and how they know who says so. Pure.

What is sent is signed as in the Standard Webhooks specification, so that receivers can use any library:

    webhook-id         the same for every try of one message: who has seen it need not act again
    webhook-timestamp  seconds since the epoch, of this try
    webhook-signature  "v1," and the base64 of HMAC-SHA256 over "{id}.{timestamp}.{body}"; while a secret is
                       being replaced there are two, with a space between them

Each receiver, by scheme, host and port, has a secret of its own, made from the namespace's: who receives
messages cannot forge or repeat them to another receiver.
"""

import base64
import hmac
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from windlass.core.address import Allowed, is_host, why_refused
from windlass.core.event import Emit, Event
from windlass.core.option import choice, shown
from windlass.core.settings import QueueSettings
from windlass.core.state import State
from windlass.core.units import SECOND, Micros
from windlass.errors import InvalidOption

TASK = "windlass.webhook"
"""The task that delivers."""
QUEUE = "windlass.webhooks"
"""Its queue."""
READER = "webhooks"
"""The name of the stored cursor."""
DELIVERIES = QueueSettings(lane_concurrency=4, emit=Emit.NONE)
"""The settings of that queue. Each receiver is a lane: one that hangs holds up itself, and a few slots."""
CALLBACK = "windlass-callback"
"""The header of a job that carries the URL to tell of its end."""
CALLBACKS = "callbacks:"
"""With the name of a queue: the document that says that its jobs may have such a header."""
LONGEST_URL = 2_000
SECRET_PREFIX = "whsec_"

End: TypeAlias = Literal["done", "dead"]
ENDS: tuple[End, ...] = ("done", "dead")

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!-\"$-~]*|\?[!-\"$-~]*)?"
)
"""Printable ASCII without blanks and without "#". Stricter than the standard: what two readers could
understand in two ways (user names, backslashes in the host, other scripts, zones) is refused.
"""
_PORTS = {"http": 80, "https": 443}


class Target(msgspec.Struct, frozen=True):
    """A URL, taken apart."""

    scheme: str
    host: str
    """In lower case, without brackets."""
    port: int
    path: str
    """With the query; at least "/"."""

    @property
    def authority(self) -> str:
        """Host and port as they stand in a Host header: the port unless it is the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Who it is, without the path, which may hold a secret: this much may be shown."""
        return f"{self.scheme}://{self.authority}"


def check_target(url: object, *, name: str = "url") -> Target:
    """Read a URL, or refuse it. A refusal does not repeat it: it may hold a secret."""
    if not isinstance(url, str):
        raise InvalidOption(f"{name} must be text such as https://example.com/hook, not {shown(url)}")
    if len(url) > LONGEST_URL:
        raise InvalidOption(f"{name} has {len(url):,} characters, the limit is {LONGEST_URL:,}")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise InvalidOption(
            f"{name} must be an http or https URL such as https://example.com/hook: printable ASCII, without "
            "user name, fragment and blanks"
        )
    scheme, host = parts["scheme"], parts["host"].lower().strip("[]")
    port = int(parts["port"] or _PORTS[scheme])
    if not 1 <= port <= 65_535 or (":" not in host and not is_host(host)):
        raise InvalidOption(f"{name}: its host or port is not one")
    path = parts["path"] or "/"
    return Target(scheme, host, port, path if path.startswith("/") else f"/{path}")


def check_reachable(target: Target, more: Allowed) -> None:
    """Refuse at once what every delivery would refuse; names are judged when they are resolved."""
    if more.names(target.host):
        return
    why = why_refused(target.host, more)
    if why and why != "not an address":
        raise InvalidOption(
            f"{target.origin} is not sent to: its address is {why}; allow it by webhook_allow"
        )
    if target.scheme != "https" and not more.networks:
        raise InvalidOption(f"{target.origin} is not sent to: use https, or allow it by webhook_allow")


class Hook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom to tell of the jobs of a queue: a document of kind `webhook`."""

    queue: str
    url: str = ""
    """Empty in the document that says that jobs of the queue may carry a URL of their own."""
    on: tuple[End, ...] = ENDS
    by: str = ""
    at: Micros = 0


def check_ends(on: Iterable[object]) -> tuple[End, ...]:
    """Return the ends of which somebody is to be told, each once, or refuse them."""
    found: tuple[Any, ...] = tuple(dict.fromkeys(choice(end, name="on", among=ENDS) for end in on))
    if not found:
        raise InvalidOption('on must name at least one of "done", "dead"')
    return found


def decode_hook(body: object) -> Hook | None:
    """The hook that a store kept; None for what this code cannot read."""
    try:
        return msgspec.json.decode(body, type=Hook) if isinstance(body, bytes) else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


# --- what is told -------------------------------------------------------------------------------------------


def end_of(event: Event) -> End | None:
    """The end that an event tells of; None for any other event, and for deliveries themselves."""
    if event.task == TASK or event.before is event.after:
        return None
    if event.after is State.DONE:
        return "done"
    return "dead" if event.after is State.DEAD else None


def message(event: Event, end: End, *, namespace: str, error: tuple[str, str] | None) -> dict[str, Any]:
    """What is said of the end of a job: no arguments, no result; of an error its type and its text, from
    which secrets were removed before it was kept.
    """
    return {
        "type": f"job.{end}",
        "at": written_time(event.at),
        "namespace": namespace,
        "job": {
            "id": event.job,
            "task": event.task,
            "queue": event.queue,
            "lane": event.lane,
            "state": end,
            "reason": None if event.reason is None else event.reason.value,
            "attempt": event.attempt,
            "runtime": None if event.runtime is None else event.runtime / SECOND,
            "waited": None if event.waited is None else event.waited / SECOND,
            "error": None if error is None else {"type": error[0], "message": error[1]},
        },
    }


def alert_message(
    name: str,
    *,
    raised: bool,
    why: str,
    queue: str | None,
    task: str | None = None,
    at: Micros,
    namespace: str,
) -> dict[str, Any]:
    """What is said of an alert."""
    return {
        "type": "alert.raised" if raised else "alert.cleared",
        "at": written_time(at),
        "namespace": namespace,
        "alert": {"name": name, "queue": queue, "task": task, "raised": raised, "why": why},
    }


def written_time(at: Micros) -> str:
    return (_EPOCH + timedelta(microseconds=at)).isoformat().replace("+00:00", "Z")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# --- who says so --------------------------------------------------------------------------------------------


class Keyring(msgspec.Struct, frozen=True, kw_only=True):
    """The secret of a namespace, and the one before it, with which messages are signed as well until then."""

    current: bytes
    previous: bytes | None = None
    until: Micros = 0

    def at(self, now: Micros) -> tuple[bytes, ...]:
        """The secrets to sign with, the newest first."""
        if self.previous is None or now >= self.until:
            return (self.current,)
        return (self.current, self.previous)


def receiver_secret(secret: bytes, target: Target) -> bytes:
    """The secret of one receiver."""
    return hmac.digest(secret, f"windlass webhook {target.origin}".encode(), "sha256")


def written_secret(secret: bytes) -> str:
    """A receiver's secret as its owner is given it."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def signature(secrets: Iterable[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The header that proves who sent a body, and when."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(
        "v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")).decode() for secret in secrets
    )


def without_callback(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a job for showing: of a callback only who it is, as its path may hold a secret."""
    shown_headers = dict(headers)
    if CALLBACK in shown_headers:
        try:
            shown_headers[CALLBACK] = check_target(shown_headers[CALLBACK]).origin + "/…"
        except InvalidOption:
            shown_headers[CALLBACK] = "…"
    return shown_headers
