"""Webhooks: who is told of the ends of a queue's jobs; and the secrets of receivers."""

from typing import Literal

import msgspec
from litestar import delete, get, post, put
from litestar.params import FromPath, JSONBody

from windlass.admin.keys import Scope
from windlass.admin.webhooks import HookShown, ReceiverSecret, Rotated
from windlass.api.access import requires
from windlass.api.bound_keys import require_whole_queues, shown_name, stored_name
from windlass.api.context import Context, RouteContext
from windlass.api.gate import named
from windlass.api.problems import conflict, field, not_found
from windlass.core.names import check_webhook
from windlass.core.webhook import check_ends, check_target


class HookWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom to tell of which jobs."""

    queue: str
    url: str
    on: tuple[Literal["done", "dead"], ...] = ("done", "dead")


class SecretWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose secret."""

    url: str


@get("/v1/webhooks", guards=[requires(Scope.READ)], tags=["webhooks"])
async def list_webhooks(context: RouteContext) -> list[HookShown]:
    """Who is told of the ends of which queue's jobs; the path of a URL is shown to operators alone."""
    require_whole_queues(context.caller)
    hooks = await context.service.webhooks.all(whole=context.caller.may(Scope.OPERATE))
    return [_shown(context, hook) for hook in hooks if context.caller.sees_queue(hook.queue)]


@put("/v1/webhooks/{name:str}", guards=[requires(Scope.OPERATE)], tags=["webhooks"])
async def put_webhook(context: RouteContext, name: FromPath[str], data: JSONBody[HookWanted]) -> HookShown:
    """Tell a URL of the jobs of a queue that are done, or dead, from now on."""
    require_whole_queues(context.caller)
    with field("name"):
        known = check_webhook(stored_name(context.caller, check_webhook(named(name))))
    with field("url"):
        check_target(data.url)
    with field("on"):
        check_ends(data.on)
    queue = await context.seen_queue(data.queue)
    if not context.app.config.webhooks:
        raise conflict("this app has no webhooks; start server and workers with WINDLASS_WEBHOOKS=true")
    before = await _found(context, named(name))
    known = known if before is None else before.name
    made = await context.service.webhooks.put(
        known, queue=queue, url=data.url, on=data.on, by=context.caller.name
    )
    said = {"webhook": known, "queue": queue, "url": made.url}
    await context.record("webhook set", said, jobs=0, wanted=0)
    return _shown(context, made)


@delete("/v1/webhooks/{name:str}", guards=[requires(Scope.OPERATE)], tags=["webhooks"])
async def remove_webhook(context: RouteContext, name: FromPath[str]) -> None:
    """Remove a webhook. Messages that wait for delivery are still sent."""
    require_whole_queues(context.caller)
    found = await _found(context, named(name))
    if found is None:
        raise not_found(f'there is no webhook "{named(name)}"', field="name")
    await context.service.webhooks.remove(found.name)
    await context.record("webhook removed", {"webhook": found.name}, jobs=0, wanted=0)


@post(
    "/v1/webhooks/secret",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["webhooks"],
)
async def show_secret(context: RouteContext, data: JSONBody[SecretWanted]) -> ReceiverSecret:
    """The secret that the receiver of a URL checks signatures with; that it was asked for is on record."""
    with field("url"):
        target = check_target(data.url)
    await context.record("webhook secret read", {"receiver": target.origin}, jobs=0, wanted=0)
    return await context.service.webhooks.secret(data.url)


@post(
    "/v1/webhooks/rotate",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["webhooks"],
)
async def rotate_secrets(context: RouteContext) -> Rotated:
    """Give every receiver a new secret; for a day messages are signed with both."""
    rotated = await context.service.webhooks.rotate()
    await context.record("webhook secrets rotated", {}, jobs=0, wanted=0)
    return rotated


async def _found(context: Context, name: str) -> HookShown | None:
    """What the caller calls by a name: its own, else what others have made where it sees it."""
    hooks = [hook for hook in await context.service.webhooks.all() if hook.url]
    seen = {hook.name: hook for hook in hooks if context.caller.sees_queue(hook.queue)}
    return seen.get(stored_name(context.caller, name)) or seen.get(name)


def _shown(context: Context, hook: HookShown) -> HookShown:
    return msgspec.structs.replace(hook, name=shown_name(context.caller, hook.name))


ROUTES = (list_webhooks, put_webhook, remove_webhook, show_secret, rotate_secrets)
