"""`windlass relays`: where the ends of jobs are told; paused and resumed."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from windlass.admin.relays import RelayShown
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.opening import with_service
from windlass.cli.output import Column, each, say, say_aside, say_json, show, show_fields
from windlass.cli.text import age, clock

Name = Annotated[str, Parameter(name="NAME", help="The relay.")]


def list_relays(app: given.App, /, *, json: given.Json = False) -> int:
    """List relays: which ends of jobs each tells to which message broker, and how far behind it is."""

    async def work(service: Service) -> None:
        nothing = 'no relays; an app declares them: app.relay("amqp://host/exchange", on="dead")'
        await show(each(await service.relays.all()), _COLUMNS, json=json, nothing=nothing)

    return with_service(app, work)


def show_relay(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Show a relay: what it tells of, how far it has read, and what went wrong."""

    async def work(service: Service) -> None:
        relay = await service.relays.one(name)
        if json:
            say_json(relay)
            return
        show_fields(_fields(relay))
        for warning in relay.warnings:
            say_aside(f"windlass: warning: {warning}")

    return with_service(app, work)


def pause_relay(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Pause a relay. If it is paused for longer than the event log keeps events, it misses some."""
    return _pause(app, name, paused=True, json=json)


def resume_relay(app: given.App, name: Name, /, *, json: given.Json = False) -> int:
    """Resume a relay where it was paused."""
    return _pause(app, name, paused=False, json=json)


def _pause(app: str, name: str, *, paused: bool, json: bool) -> int:
    async def work(service: Service) -> None:
        changed = await service.relays.pause(name, paused=paused)
        effect = "paused" if paused else "resumed"
        if changed:
            await put_on_record(service, f"relay {effect}", {"relay": name})
        else:
            effect = "paused already" if paused else "not paused"
        say_json({"relay": name, "effect": effect}) if json else say(f'relay "{name}": {effect}')

    return with_service(app, work)


def _fields(relay: RelayShown) -> Sequence[tuple[str, str]]:
    who = f"{relay.host} pid {relay.pid}" if relay.host or relay.pid else "nobody"
    return (
        ("relay", relay.name),
        ("state", relay.state),
        ("tells", relay.url),
        ("to", relay.to),
        ("on", ", ".join(relay.on)),
        ("queues", ", ".join(relay.queues) or "all"),
        ("tasks", ", ".join(relay.tasks) or "all"),
        ("payload", "yes" if relay.payload else "no"),
        ("sent", f"{relay.sent:,}"),
        ("refused", f"{relay.refused:,}, the last of job {relay.refused_job}" if relay.refused else ""),
        ("gaps", f"{relay.gaps:,}"),
        ("behind", _behind(relay)),
        ("run by", who if relay.is_read else f"({who}, no longer)"),
        ("reported", clock(relay.as_of)),
        ("trouble", relay.error),
        ("app", relay.app),
    )


def _behind(relay: RelayShown) -> str:
    return "" if relay.behind is None else age(relay.behind)


_COLUMNS: Sequence[Column[RelayShown]] = (
    Column("relay", lambda relay: relay.name, wraps=True),
    Column("state", lambda relay: relay.state),
    Column("tells", lambda relay: relay.url, wraps=True, spare=2),
    Column("on", lambda relay: ", ".join(relay.on), wraps=True),
    Column("sent", lambda relay: f"{relay.sent:,}", right=True),
    Column("refused", lambda relay: f"{relay.refused:,}", right=True, spare=1),
    Column("gaps", lambda relay: f"{relay.gaps:,}", right=True, spare=1),
    Column("behind", _behind, right=True),
    Column("trouble", lambda relay: relay.error, wraps=True),
)
