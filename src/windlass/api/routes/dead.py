"""Dead letters: listed, grouped, edited, replayed and discarded, by id or by filter in the background."""

from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from litestar import delete, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from windlass.admin.dead import Selection, reason_in_bulk
from windlass.admin.groups import Grouped
from windlass.admin.keys import Scope
from windlass.admin.operations import KEPT, OperationShown
from windlass.admin.views import DeadShown, moment
from windlass.api.access import requires
from windlass.api.bound_keys import require_named_scope
from windlass.api.by_ids import Ids, Reason, each
from windlass.api.changing import Change, change_job, changes
from windlass.api.context import Context, RouteContext
from windlass.api.page import USUAL, After, Limit, Page, listing
from windlass.api.problems import conflict, field, invalid, not_found
from windlass.core.duration import instant, micros, when
from windlass.core.limits import parse_rate
from windlass.core.operate import Effect, Operated
from windlass.core.state import State
from windlass.core.units import Micros
from windlass.errors import InvalidOption

MOST_COUNTED = 2_000
"""Dead letters that one call counts, where the store has not counted them."""
MOST_GROUPED = 10_000
"""Dead letters that are looked at for their groups in one call."""

Text = Annotated[str | None, QueryParameter(max_length=200)]
OlderThan = Annotated[str | None, QueryParameter(name="older_than", max_length=20)]
Until = Annotated[
    str | None, QueryParameter(name="until", max_length=40, description="Only those that died until then.")
]


class DeadChange(Change, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New values for a dead letter; what is left out stays."""

    replay: bool = False
    """Send it back, too."""


class DeadCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters match."""

    count: int
    at: datetime
    """What died later is not counted. Give it to an operation as `until`, and the count as `most`: it then
    touches what was counted, and nothing else.
    """
    cursor: str | None = None
    """There may be more: ask on from here."""


class NewOperation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do to which dead letters: a filter, or all."""

    verb: Literal["replay", "discard"]
    queue: str | None = None
    task: str | None = None
    lane: str | None = None
    error: str | None = None
    """Text in the error's type or message, in any case."""
    group: str | None = None
    """A fingerprint, as the groups show it."""
    older_than: float | str | None = None
    """Seconds, or text such as "12h": only those that died longer ago."""
    until: datetime | None = None
    """Only those that had died by then: the `at` of a count. Left out: by now."""
    most: Annotated[int, Meta(ge=1)] | None = None
    """So many and no more: what was counted, for somebody who agreed to it."""
    all: bool = False
    """Without a filter it has to be said that all are meant."""
    rate: str | None = None
    """So many at a time, such as "50/s"."""
    reason: Reason = ""
    """Why, for the record (`/v1/audit`) and for the archive, once for all of them. Left out of a discard:
    that it was done in bulk, by which filter.
    """


@get("/v1/dead", guards=[requires(Scope.READ)], tags=["dead"])
async def list_dead(
    context: RouteContext,
    queue: Text = None,
    task: Text = None,
    lane: Text = None,
    error: Text = None,
    group: Text = None,
    older_than: OlderThan = None,
    limit: Limit = USUAL,
    cursor: After = None,
) -> Page[DeadShown]:
    """Dead letters with their errors, the newest accepted job first where the store keeps that order."""
    chosen = await _Chosen(queue, task, lane, error, group, older_than).selection(context)
    listed = listing(context.caller, "dead", chosen.query())
    found, place = await context.service.dead.page(
        chosen, context.opened(cursor, listed), limit, sees=context.sees
    )
    items = [context.shown(letter) for letter in found]
    return Page(items=items, cursor=context.sealed(place, listed))


@get("/v1/dead/groups", guards=[requires(Scope.READ)], tags=["dead"])
async def group_dead(
    context: RouteContext,
    queue: Text = None,
    task: Text = None,
    lane: Text = None,
    error: Text = None,
    older_than: OlderThan = None,
) -> Grouped:
    """Dead letters by task and cause: how many, the first and the last; of the first 10,000 at the most."""
    chosen = await _Chosen(queue, task, lane, error, None, older_than).selection(context)
    return await context.service.dead.groups(chosen, sees=context.sees, most=MOST_GROUPED)


@get("/v1/dead/count", guards=[requires(Scope.READ)], tags=["dead"])
async def count_dead(
    context: RouteContext,
    queue: Text = None,
    task: Text = None,
    lane: Text = None,
    error: Text = None,
    group: Text = None,
    older_than: OlderThan = None,
    until: Until = None,
    cursor: After = None,
) -> DeadCount:
    """How many dead letters match. Those of a queue, of a task or of all are counted in one call; for other
    filters it looks at some in each call: while there is a `cursor`, ask on with it and with the first
    answer's `at` as `until`, and add up.
    """
    now = await context.service.now()
    with field("until"):
        died = now if until is None else when(until, now, name="until")
    chosen = await _Chosen(queue, task, lane, error, group, older_than).selection(context)
    if chosen.indexed and until is None and not context.caller.is_bound:
        return DeadCount(count=await context.service.dead.count(chosen), at=moment(now))
    dated = _dated(chosen, died)
    listed = listing(context.caller, "dead count", dated.query())
    after = context.opened(cursor, listed)
    count, place = await context.service.dead.count_page(dated, after, MOST_COUNTED, sees=context.sees)
    return DeadCount(count=count, at=moment(died), cursor=context.sealed(place, listed))


@post("/v1/dead/replay", status_code=200, guards=[requires(Scope.OPERATE)], tags=["dead"])
async def replay_dead(context: RouteContext, data: JSONBody[Ids]) -> list[Operated]:
    """Send dead letters back, by id: they become ready, with all their attempts. The answer says what became
    of each, in order.
    """
    return await each(context, data, "replayed", context.service.dead.replay)


@post("/v1/dead/discard", status_code=200, guards=[requires(Scope.OPERATE)], tags=["dead"])
async def discard_dead(context: RouteContext, data: JSONBody[Ids]) -> list[Operated]:
    """Remove dead letters for good, by id, with a reason. Their traces go to the archive, if the app has one.
    The answer says what became of each, in order.
    """
    if not data.reason.strip():
        raise invalid("say why they are discarded: what is left of them is that", field="reason")
    discard = partial(context.service.dead.discard, reason=data.reason, by=context.caller.name)
    return await each(context, data, "discarded", discard)


@patch("/v1/dead/{job:str}", guards=[requires(Scope.OPERATE)], tags=["dead"])
async def edit_dead(context: RouteContext, job: FromPath[str], data: JSONBody[DeadChange]) -> Operated:
    """Change a dead letter, and send it back if asked. New arguments are checked like those of a call."""
    found = await context.seen_job(job)
    if found.state is not State.DEAD:
        raise conflict(f"job {job} is not dead but {found.state}")
    if not changes(data) and not data.replay:
        raise invalid("say what to change: arguments, priority, max_attempts, tags, or replay")
    answer = Operated(found.id, Effect.APPLIED, found.state)
    if said := changes(data):
        answer = await change_job(context, context.service, found, data)
        if answer.effect is not Effect.APPLIED:
            raise conflict(f"job {job} was not changed: it is {answer.state or 'not known'} by now")
        await context.record("edited", {"job": job, **said}, jobs=1, wanted=1)
    if data.replay:
        answer = await context.service.dead.replay_one(found.id)
        done = int(answer.effect is Effect.APPLIED)
        await context.record("replayed", {"job": job}, jobs=done, wanted=1)
    return answer


# --- in the background --------------------------------------------------------------------------------------


@post("/v1/dead/operations", status_code=202, guards=[requires(Scope.OPERATE)], tags=["dead"])
async def start_operation(context: RouteContext, data: JSONBody[NewOperation]) -> OperationShown:
    """Replay or discard the dead letters that match, in the background, at a rate if one is given. Nothing
    that dies from now on is touched; with `until` and `most` nothing but what was counted
    (`/v1/dead/count`). Ask for its progress by its id.
    """
    chosen = _Chosen(data.queue, data.task, data.lane, data.error, data.group, data.older_than)
    if not chosen.said() and not data.all:
        raise invalid('give a filter, such as task, or say "all": true')
    require_named_scope(context.caller, data.queue, data.lane)
    selection = await chosen.selection(context)
    if data.until is not None:
        with field("until"):
            selection = _dated(selection, instant(data.until, name="until"))
    with field("rate"):
        rate = None if data.rate is None else parse_rate(data.rate)
    said = chosen.said() or {"all": "yes"}
    reason = data.reason.strip() or (reason_in_bulk(said) if data.verb == "discard" else "")
    # Its end goes on record with what became of it, unless its server dies before that.
    await context.record(f"{data.verb} begun", said, jobs=0, wanted=0, reason=reason)
    return await context.service.operations.start(
        data.verb,
        selection,
        chosen=said,
        rate=rate,
        most=data.most,
        by=context.caller.name,
        reason=reason,
    )


@get("/v1/dead/operations", guards=[requires(Scope.READ, unbound=True)], tags=["dead"])
async def list_operations(context: RouteContext) -> list[OperationShown]:
    """The latest operations, newest first; 100 are kept."""
    return await context.service.operations.all()


@get("/v1/dead/operations/{operation:str}", guards=[requires(Scope.READ)], tags=["dead"])
async def show_operation(context: RouteContext, operation: FromPath[str]) -> OperationShown:
    """The progress of an operation."""
    return await _operation(context, operation)


@delete(
    "/v1/dead/operations/{operation:str}", status_code=200, guards=[requires(Scope.OPERATE)], tags=["dead"]
)
async def stop_operation(context: RouteContext, operation: FromPath[str]) -> OperationShown:
    """Stop an operation, on whichever server it runs. What it has done stays done."""
    await _operation(context, operation)
    stopped = await context.service.operations.stop(operation)
    await context.record("operation stopped", {"operation": operation}, jobs=0, wanted=0)
    return stopped


async def _operation(context: Context, operation: str) -> OperationShown:
    """A bound key sees its own."""
    try:
        found = await context.service.operations.one(operation)
    except InvalidOption:
        found = None
    if found is None or (context.caller.is_bound and found.by != context.caller.name):
        raise not_found(f'there is no operation "{operation}"; the last {KEPT} are kept', field="operation")
    return found


# --- parts --------------------------------------------------------------------------------------------------


class _Chosen:
    """A filter, as it was asked for."""

    def __init__(
        self,
        queue: str | None,
        task: str | None,
        lane: str | None,
        error: str | None,
        group: str | None,
        older_than: float | str | None,
    ) -> None:
        self._fields = {"queue": queue, "task": task, "lane": lane, "error": error, "group": group}
        self._older_than = older_than

    def said(self) -> dict[str, str]:
        """What was given, for the record."""
        given = {**self._fields, "older_than": self._older_than}
        return {name: str(value) for name, value in given.items() if value is not None}

    async def selection(self, context: Context) -> Selection:
        """The same for the services; the age is counted by the store's clock."""
        fields = dict(self._fields)
        if fields["queue"] is not None:
            await context.seen_queue(fields["queue"])
        if fields["lane"] is not None:
            context.seen_lane(fields["lane"])
        before = None
        if self._older_than is not None:
            with field("older_than"):
                before = await context.service.now() - micros(self._older_than, name="older_than")
        return Selection(fingerprint=fields.pop("group"), died_before=before, **fields)


def _dated(selection: Selection, until: Micros) -> Selection:
    """Of those, the ones that had died by then."""
    before = until if selection.died_before is None else min(until, selection.died_before)
    return msgspec.structs.replace(selection, died_before=before)


ROUTES = (
    list_dead,
    group_dead,
    count_dead,
    replay_dead,
    discard_dead,
    edit_dead,
    start_operation,
    list_operations,
    show_operation,
    stop_operation,
)
