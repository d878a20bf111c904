"""`windlass webhooks`: URLs that get a message when jobs of a queue end, and their secrets."""

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from windlass.admin.audit import operator_name
from windlass.admin.service import Service
from windlass.admin.webhooks import HookShown
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.opening import with_service
from windlass.cli.output import Column, confirm, each, say, say_aside, say_json, show
from windlass.cli.text import clock

Name = Annotated[str, Parameter(name="NAME", help="The webhook's name.")]
Url = Annotated[str, Parameter(name="URL", help="Such as https://example.com/hook.")]


def list_webhooks(
    app: given.App,
    /,
    *,
    whole: Annotated[bool, Parameter(name="--whole", help="Show whole URLs, with their paths.")] = False,
    json: given.Json = False,
) -> int:
    """List webhooks: which URL gets messages about the jobs of which queue."""

    async def work(service: Service) -> None:
        nothing = f"no webhooks; add one: windlass webhooks {app} add NAME QUEUE URL"
        await show(each(await service.webhooks.all(whole=whole)), _COLUMNS, json=json, nothing=nothing)

    return with_service(app, work)


def add_webhook(
    app: given.App,
    name: Name,
    queue: Annotated[str, Parameter(name="QUEUE", help="The queue.")],
    url: Url,
    /,
    *,
    on: Annotated[
        tuple[Literal["done", "dead"], ...], Parameter(help="Which ends to send; by default both.")
    ] = ("done", "dead"),
    json: given.Json = False,
) -> int:
    """Send a message to a URL when a job of the queue is done or dead, from now on."""

    async def work(service: Service) -> None:
        made = await service.webhooks.put(name, queue=queue, url=url, on=on, by=operator_name())
        await put_on_record(service, "webhook set", {"webhook": name, "queue": queue, "url": made.url})
        say_json(made) if json else say(
            f'webhook "{name}" sends messages about queue "{queue}" to {made.url}'
        )

    return with_service(app, work)


def remove_webhook(app: given.App, name: Name, /) -> int:
    """Remove a webhook. Messages that wait for delivery are still sent."""

    async def work(service: Service) -> None:
        await service.webhooks.remove(name)
        await put_on_record(service, "webhook removed", {"webhook": name})
        say(f'webhook "{name}" is removed')

    return with_service(app, work)


def show_secret(app: given.App, url: Url, /, *, json: given.Json = False) -> int:
    """Show the secret with which a URL's receiver checks signatures. The audit log notes that you did."""

    async def work(service: Service) -> None:
        found = await service.webhooks.secret(url)
        await put_on_record(service, "webhook secret read", {"receiver": found.receiver})
        say_json(found) if json else say(found.secret)

    return with_service(app, work)


def rotate_secrets(app: given.App, /, *, yes: given.Yes = False, json: given.Json = False) -> int:
    """Give every receiver a new secret. For one day messages are signed with the old and the new one."""

    async def work(service: Service) -> None:
        if not confirm("replace the secret of every receiver", yes=yes):
            say_aside("nothing was done")
            return
        rotated = await service.webhooks.rotate()
        await put_on_record(service, "webhook secrets rotated", {})
        said = f"the old secrets are valid until {clock(rotated.both_until)}"
        say_json(rotated) if json else say(said)

    return with_service(app, work)


_COLUMNS: Sequence[Column[HookShown]] = (
    Column("name", lambda hook: hook.name, wraps=True),
    Column("queue", lambda hook: hook.queue, wraps=True),
    Column("url", lambda hook: hook.url or "(each job's own)", wraps=True),
    Column("on", lambda hook: ", ".join(hook.on)),
    Column("by", lambda hook: hook.by, wraps=True),
)
