"""`windlass keys`: the API keys of an app's namespace."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from windlass.admin.keys import KeyShown, NewKey, Scope
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.opening import with_service
from windlass.cli.output import Column, each, say, say_aside, say_json, show
from windlass.cli.text import clock, since
from windlass.core.duration import micros

KeyId = Annotated[str, Parameter(help="The key's id.")]


def list_keys(app: given.App, /, *, json: given.Json = False) -> int:
    """List API keys, the newest first. Their secrets are not stored and cannot be shown."""

    async def work(service: Service) -> None:
        found = await service.keys.shown()
        nothing = f"no API keys: only this machine can reach the API; create one: windlass keys {app} create"
        await show(each(found), _columns(await service.clock()), json=json, nothing=nothing)

    return with_service(app, work)


def create_key(
    app: given.App,
    /,
    *,
    scope: Annotated[
        tuple[Scope, ...],
        Parameter(help="What the key may do; repeat for more. `operate` includes `read`."),
    ] = (),
    queue: Annotated[
        tuple[str, ...],
        Parameter(help="Limit the key to this queue; repeat for more. By default all queues."),
    ] = (),
    lane: Annotated[
        tuple[str, ...], Parameter(help="Limit the key to this lane; repeat for more. By default all lanes.")
    ] = (),
    expires: Annotated[
        str | None, Parameter(help='How long it is valid: "12h", "90d". By default without end.')
    ] = None,
    label: Annotated[str, Parameter(help="Who uses the key, or what for.")] = "",
    json: given.Json = False,
) -> int:
    """Create an API key and print it. It cannot be shown again."""
    wanted = NewKey(
        label=label,
        scopes=[str(each_) for each_ in scope],
        queues=queue,
        lanes=lane,
        expires=None if expires is None else micros(expires, name="--expires"),
    )

    async def work(service: Service) -> None:
        text, key = await service.keys.create(wanted)
        said = {"label": label, "queues": ", ".join(queue), "lanes": ", ".join(lane), "expires": expires}
        chosen = {"key": key.id, "scopes": ", ".join(key.scopes)}
        chosen.update({name: value for name, value in said.items() if value})
        await put_on_record(service, "key made", chosen)
        if json:
            say_json({"key": text, "id": key.id, "scopes": key.scopes, "expires_at": key.expires_at})
        else:
            say(text)
            say_aside(f"windlass: key {key.id} is valid from now on; it is not shown again")

    return with_service(app, work)


def revoke_key(app: given.App, key: KeyId, /, *, json: given.Json = False) -> int:
    """Revoke an API key: servers refuse it within 5 seconds. It stays in the list."""

    async def work(service: Service) -> None:
        revoked = await service.keys.revoke(key)
        await put_on_record(service, "key revoked", {"key": revoked.id})
        if json:
            say_json(revoked)
        else:
            say(f"key {revoked.id} is revoked")

    return with_service(app, work)


def _columns(now: datetime) -> Sequence[Column[KeyShown]]:
    return (
        Column("id", lambda key: key.id),
        Column("label", lambda key: key.label, wraps=True),
        Column("state", lambda key: key.state),
        Column("scopes", lambda key: ",".join(key.scopes), wraps=True),
        Column("queues", lambda key: "all" if key.queues is None else ",".join(key.queues), wraps=True),
        Column("lanes", lambda key: "all" if key.lanes is None else ",".join(key.lanes), wraps=True),
        Column("made", lambda key: since(key.created_at, now), right=True),
        Column("expires", lambda key: "" if key.expires_at is None else clock(key.expires_at), right=True),
    )
