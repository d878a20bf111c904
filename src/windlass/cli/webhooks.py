"""`windlass webhooks`: who is told of the ends of a queue's jobs, and the secrets of receivers."""

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from windlass.admin.audit import operator_name, recorded
from windlass.admin.service import Service
from windlass.admin.webhooks import HookShown
from windlass.cli import parameters as given
from windlass.cli.opening import with_service
from windlass.cli.output import Column, confirm, each, say, say_aside, say_json, show
from windlass.cli.text import clock

Name = Annotated[str, Parameter(name="NAME", help="The webhook's name.")]
Url = Annotated[str, Parameter(name="URL", help="Such as https://example.com/hook.")]


def list_webhooks(
    app: given.App,
    /,
    *,
    whole: Annotated[bool, Parameter(name="--whole", help="With the paths of URLs.")] = False,
    json: given.Json = False,
) -> int:
    """List who is told of the jobs of which queue."""

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
        tuple[Literal["done", "dead"], ...], Parameter(help="Of which ends; by default of both.")
    ] = ("done", "dead"),
    json: given.Json = False,
) -> int:
    """Tell a URL of the jobs of a queue that are done, or dead, from now on."""

    async def work(service: Service) -> None:
        made = await service.webhooks.put(name, queue=queue, url=url, on=on, by=operator_name())
        await _record(service, "webhook set", {"webhook": name, "queue": queue, "url": made.url})
        say_json(made) if json else say(f'webhook "{name}" tells {made.url} of queue "{queue}"')

    return with_service(app, work)


def remove_webhook(app: given.App, name: Name, /) -> int:
    """Tell it no more; what is on its way is delivered."""

    async def work(service: Service) -> None:
        await service.webhooks.remove(name)
        await _record(service, "webhook removed", {"webhook": name})
        say(f'webhook "{name}" is removed')

    return with_service(app, work)


def show_secret(app: given.App, url: Url, /, *, json: given.Json = False) -> int:
    """Show the secret that the receiver of a URL checks signatures with. That it was shown is on record."""

    async def work(service: Service) -> None:
        found = await service.webhooks.secret(url)
        await _record(service, "webhook secret read", {"receiver": found.receiver})
        say_json(found) if json else say(found.secret)

    return with_service(app, work)


def rotate_secrets(app: given.App, /, *, yes: given.Yes = False, json: given.Json = False) -> int:
    """Give every receiver a new secret; for a day messages are signed with both."""

    async def work(service: Service) -> None:
        if not confirm("replace the secret of every receiver", yes=yes):
            say_aside("nothing was done")
            return
        rotated = await service.webhooks.rotate()
        await _record(service, "webhook secrets rotated", {})
        said = f"the old secrets count until {clock(rotated.both_until)}"
        say_json(rotated) if json else say(said)

    return with_service(app, work)


async def _record(service: Service, what: str, chosen: dict[str, str]) -> None:
    failed = await recorded(service.audit, what, chosen, jobs=0, wanted=0)
    if failed:
        say_aside(f"windlass: this is not on record: {failed}")


_COLUMNS: Sequence[Column[HookShown]] = (
    Column("name", lambda hook: hook.name, wraps=True),
    Column("queue", lambda hook: hook.queue, wraps=True),
    Column("url", lambda hook: hook.url or "(each job's own)", wraps=True),
    Column("on", lambda hook: ", ".join(hook.on)),
    Column("by", lambda hook: hook.by, wraps=True),
)
