"""The built-in task that delivers webhooks: signs a message, sends it, and reads what the answer means."""

import time
from typing import Annotated, Any

import msgspec

from windlass.core.address import allowed
from windlass.core.codec import VERSION, Call, encode
from windlass.core.job import NewJob
from windlass.core.retry import RetryPolicy
from windlass.core.secret import Secret
from windlass.core.units import SECOND, JobId
from windlass.core.webhook import QUEUE, TASK, Keyring, check_target, receiver_secret, signature
from windlass.errors import InvalidOption
from windlass.signals import GiveUp, Retry
from windlass.version import __version__
from windlass.worker.keyring import keyring
from windlass.worker.posting import Forbidden, Undelivered, post
from windlass.worker.program import Program
from windlass.worker.run import running

RETRY = RetryPolicy(max_attempts=12, base=5, cap=3600, jitter="equal")
"""From seconds to an hour apart: one to two and a half hours in all."""
TIMEOUT = 30
LONGEST_PAUSE = 3_600
"""Seconds that a receiver may ask to be left alone for."""
_FRESH = 60.0
"""Seconds after which the secret is read again: a new one is used from then on."""
_GONE = 410

_rings: dict[tuple[str, str], tuple[float, Keyring]] = {}


async def deliver(url: Annotated[str, Secret], event: dict[str, Any]) -> None:
    """Send a signed message about an event to a receiver, if it may be sent there."""
    run = running.get()
    program = run.program
    try:
        target = check_target(url)
    except InvalidOption as error:
        raise GiveUp(str(error)) from None
    body = msgspec.json.encode(event)
    now = int(time.time())
    secrets = [receiver_secret(secret, target) for secret in (await _ring(program)).at(now * SECOND)]
    headers = {
        "user-agent": f"windlass/{__version__}",
        "webhook-id": run.lease.job,
        "webhook-timestamp": str(now),
        "webhook-signature": signature(secrets, run.lease.job, now, body),
    }
    try:
        answered = await post(target, body, headers, more=allowed(program.config.webhook_allow))
    except Forbidden as error:
        raise GiveUp(str(error)) from None
    status, said = answered.status, f"{target.origin} answered {answered.status}"
    if 200 <= status < 300:
        return
    if status == _GONE:
        raise GiveUp(f"{said}: it wants no more of these")
    if 300 <= status < 400:
        raise Undelivered(f"{said}: redirects are not followed")
    if answered.retry_after is not None:
        raise Retry(said, after=min(answered.retry_after, LONGEST_PAUSE))
    raise Undelivered(said)


def delivery(job: JobId, url: str, event: dict[str, Any], tags: tuple[str, ...] = ()) -> NewJob:
    """The job that sends a message about an event to a receiver. It has the tags of the job that it tells of:
    who forgets a tag forgets the message, too.
    """
    return NewJob(
        id=job,
        tags=tags,
        task=TASK,
        queue=QUEUE,
        lane=check_target(url).origin[:_LONGEST_LANE],
        payload=encode(Call(VERSION, (), {"url": url, "event": event})),
        max_attempts=RETRY.max_attempts,
    )


_LONGEST_LANE = 200


async def _ring(program: Program) -> Keyring:
    """The signing keys. Read rarely: they change when a person replaces one."""
    place = (program.config.url, program.config.namespace)
    known = _rings.get(place)
    if known is not None and time.monotonic() - known[0] < _FRESH:
        return known[1]
    ring = await keyring(await program.broker())
    _rings[place] = (time.monotonic(), ring)
    return ring
