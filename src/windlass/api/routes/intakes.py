"""Intakes: listed with their offsets and owners; paused, resumed, moved and forgotten."""

import msgspec
from litestar import get, post
from litestar.params import FromPath, JSONBody

from windlass.admin.intakes import Forgotten, IntakeShown, Moved
from windlass.admin.keys import Scope
from windlass.api.access import Caller, requires
from windlass.api.context import Context, RouteContext
from windlass.api.gate import named
from windlass.api.problems import conflict, field, not_found


class MoveWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an intake is to go on."""

    partition: str
    to: str
    """`begin`, `end`, or an offset as the source writes it. The message broker is asked."""
    identity: str | None = None
    """Which log the offset is of. Then the message broker is not asked, and nothing is checked."""
    expect: str | None = None
    """Move it only if the offset is still this one."""


@get("/v1/intakes", guards=[requires(Scope.READ)], tags=["intakes"])
async def list_intakes(context: RouteContext) -> list[IntakeShown]:
    """All intakes: where each reads, how many messages wait, and who reads each partition."""
    return [each for each in await context.service.intakes.all() if _sees(context.caller, each)]


@get("/v1/intakes/{name:str}", guards=[requires(Scope.READ)], tags=["intakes"])
async def show_intake(context: RouteContext, name: FromPath[str]) -> IntakeShown:
    """One intake."""
    return await _mine(context, name)


@post("/v1/intakes/{name:str}/pause", status_code=200, guards=[requires(Scope.OPERATE)], tags=["intakes"])
async def pause_intake(context: RouteContext, name: FromPath[str]) -> IntakeShown:
    """Pause an intake. The message broker keeps new messages; jobs that were taken run."""
    return await _paused(context, name, paused=True)


@post("/v1/intakes/{name:str}/resume", status_code=200, guards=[requires(Scope.OPERATE)], tags=["intakes"])
async def resume_intake(context: RouteContext, name: FromPath[str]) -> IntakeShown:
    """Resume an intake where it was paused."""
    return await _paused(context, name, paused=False)


@post("/v1/intakes/{name:str}/move", status_code=200, guards=[requires(Scope.OPERATE)], tags=["intakes"])
async def move_intake(context: RouteContext, name: FromPath[str], data: JSONBody[MoveWanted]) -> Moved:
    """Let an intake go on at another place of a partition, also where a source was deleted and made anew.
    Messages between the two places are taken again, or left out. 409: the offset is not the expected one, or
    the message broker refuses; 502: it does not answer.
    """
    known = (await _mine(context, name)).name
    with field("to"):
        moved = await context.service.intakes.move(
            known, data.partition, data.to, identity=data.identity, expect=data.expect
        )
    if not moved.moved:
        raise conflict(f"the offset is {moved.offset}, not {data.expect}: look again", field="expect")
    places = {"from": moved.before or "", "to": moved.offset or ""}
    chosen = {"intake": known, "partition": data.partition, **places}
    await context.record("intake moved", chosen, jobs=0, wanted=0)
    return moved


@post("/v1/intakes/{name:str}/forget", status_code=200, guards=[requires(Scope.OPERATE)], tags=["intakes"])
async def forget_intake(context: RouteContext, name: FromPath[str]) -> Forgotten:
    """Remove the offsets of an intake that no process runs. If it is run again, it begins anew."""
    known = await _mine(context, name)
    if known.runners:
        raise conflict(f'intake "{known.name}" is run by a process: stop it first', field="name")
    forgotten = await context.service.intakes.forget(known.name)
    chosen = {"intake": known.name, "offsets": str(forgotten.offsets)}
    await context.record("intake forgotten", chosen, jobs=0, wanted=0)
    return forgotten


async def _paused(context: Context, name: str, *, paused: bool) -> IntakeShown:
    known = await _mine(context, name)
    if known.state == "gone":
        raise conflict(f'intake "{known.name}" is declared by no code any more', field="name")
    if await context.service.intakes.pause(known.name, paused=paused):
        what = "intake paused" if paused else "intake resumed"
        await context.record(what, {"intake": known.name}, jobs=0, wanted=0)
    return await context.service.intakes.one(known.name)


async def _mine(context: Context, name: str) -> IntakeShown:
    known = named(name)
    for each in await context.service.intakes.all():
        if each.name == known and _sees(context.caller, each):
            return each
    raise not_found(f'there is no intake "{known}"', field="name")


def _sees(caller: Caller, intake: IntakeShown) -> bool:
    """A key that is bound sees an intake that fills none but its queues, and all lanes of them."""
    if not caller.is_bound:
        return True
    return caller.lanes is None and bool(intake.queues) and all(map(caller.sees_queue, intake.queues or ()))


ROUTES = (list_intakes, show_intake, pause_intake, resume_intake, move_intake, forget_intake)
