"""Relays: listed with how far they have read; paused and resumed."""

from litestar import get, post
from litestar.params import FromPath

from windlass.admin.keys import Scope
from windlass.admin.relays import RelayShown
from windlass.api.access import Caller, requires
from windlass.api.context import Context, RouteContext
from windlass.api.gate import named
from windlass.api.problems import conflict, not_found


@get("/v1/relays", guards=[requires(Scope.READ)], tags=["relays"])
async def list_relays(context: RouteContext) -> list[RelayShown]:
    """All relays: which ends of jobs each tells to which message broker, and how far behind it is."""
    return [each for each in await context.service.relays.all() if _sees(context.caller, each)]


@get("/v1/relays/{name:str}", guards=[requires(Scope.READ)], tags=["relays"])
async def show_relay(context: RouteContext, name: FromPath[str]) -> RelayShown:
    """One relay."""
    return await _mine(context, name)


@post("/v1/relays/{name:str}/pause", status_code=200, guards=[requires(Scope.OPERATE)], tags=["relays"])
async def pause_relay(context: RouteContext, name: FromPath[str]) -> RelayShown:
    """Pause a relay. If it is paused for longer than the event log keeps events, it misses some."""
    return await _paused(context, name, paused=True)


@post("/v1/relays/{name:str}/resume", status_code=200, guards=[requires(Scope.OPERATE)], tags=["relays"])
async def resume_relay(context: RouteContext, name: FromPath[str]) -> RelayShown:
    """Resume a relay where it was paused."""
    return await _paused(context, name, paused=False)


async def _paused(context: Context, name: str, *, paused: bool) -> RelayShown:
    known = await _mine(context, name)
    if known.state == "gone":
        raise conflict(f'relay "{known.name}" is declared by no code any more', field="name")
    if await context.service.relays.pause(known.name, paused=paused):
        what = "relay paused" if paused else "relay resumed"
        await context.record(what, {"relay": known.name}, jobs=0, wanted=0)
    return await context.service.relays.one(known.name)


async def _mine(context: Context, name: str) -> RelayShown:
    known = named(name)
    for each in await context.service.relays.all():
        if each.name == known and _sees(context.caller, each):
            return each
    raise not_found(f'there is no relay "{known}"', field="name")


def _sees(caller: Caller, relay: RelayShown) -> bool:
    """A key that is bound sees a relay that tells of none but its queues, and of all lanes of them."""
    if not caller.is_bound:
        return True
    return caller.lanes is None and bool(relay.queues) and all(map(caller.sees_queue, relay.queues))


ROUTES = (list_relays, show_relay, pause_relay, resume_relay)
