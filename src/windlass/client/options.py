"""The options of one call, as users give them to `using(...)` and `@app.task(...)`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, cast

from windlass.core.duration import Duration, instant, micros
from windlass.core.ids import check_job_id
from windlass.core.job import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_ATTEMPTS,
    Edge,
    Mode,
    NewJob,
    OnFailure,
    check_new_job,
)
from windlass.core.names import check_flow, check_headers, check_key, check_lane, check_queue, check_tags
from windlass.core.option import choice, shown, whole
from windlass.core.spelling import hint
from windlass.core.units import JobId, Micros
from windlass.core.webhook import CALLBACK, check_target
from windlass.errors import InvalidOption

_MODES = tuple(mode.value for mode in Mode)
_POLICIES = tuple(policy.value for policy in OnFailure)


class CallOptions(TypedDict, total=False):
    """What `using(...)` takes. Times are seconds, text such as "5m", or timedelta; `run_at` an aware
    datetime.
    """

    queue: str
    lane: str
    priority: int
    delay: Duration
    run_at: datetime
    expires: Duration
    key: str
    mode: Literal["ignore", "replace", "throttle"]
    window: Duration
    after: object
    """A job, a call that is sent with this one or was sent before, an id, or a list of them."""
    on_failure: Literal["cancel", "ignore", "run"]
    """What becomes of this job when a parent will never be done; in a flow, when one before it will not."""
    max_attempts: int
    headers: Mapping[str, str]
    tags: Sequence[str]
    flow: str
    callback: str
    """A URL that is told when the job is done, and when it is dead."""
    connection: object
    """A connection of yours: the job exists when its transaction commits. Where the store can."""


def check_known(options: Mapping[str, object], kind: type[Any], *named: str) -> None:
    """Refuse an option that a kind of options (a TypedDict) does not have; say which one was meant, or which
    there are. `named` are keywords that the function takes beside these.
    """
    if unknown := sorted(options.keys() - kind.__annotations__.keys()):
        known = sorted({*kind.__annotations__, *named})
        raise InvalidOption(f"unknown option {shown(unknown[0])}; {hint(unknown[0], known, 'options are')}")


def prepared(task: str, revision: int, options: CallOptions) -> dict[str, Any]:
    """The fields of every job that calls under these options ask for, but id and payload.

    Read and checked once, when a task is registered or `using` is called, not with each call. `InvalidOption`
    names the option that cannot be honoured.
    """
    fields: dict[str, Any] = {
        name: _READERS[name](value) for name, value in options.items() if name in _READERS
    }
    fields.update(task=task, revision=revision)
    if (callback := options.get("callback")) is not None:
        check_target(callback, name="callback")
        fields["headers"] = check_headers({**fields.get("headers", {}), CALLBACK: callback})
    after = options.get("after")
    if after is not None:
        fields["after"] = _edges(after, policy_of(options))
    check_new_job(NewJob(id="", **fields))
    return fields


def _duration(name: str) -> Callable[[Any], Micros]:
    return lambda value: micros(value, name=name)


def _whole(name: str, least: int, most: int) -> Callable[[object], int]:
    return lambda value: whole(value, name=name, least=least, most=most)


def _mode(value: object) -> Mode:
    return Mode(choice(value, name="mode", among=_MODES))


def _run_at(value: object) -> Micros:
    if not isinstance(value, datetime):
        raise InvalidOption(
            f"run_at must be a datetime with a time zone, not {shown(value)}; for a duration use delay"
        )
    return instant(value, name="run_at")


_READERS: Mapping[str, Callable[[Any], object]] = {
    "queue": check_queue,
    "lane": check_lane,
    "priority": _whole("priority", LOWEST_PRIORITY, HIGHEST_PRIORITY),
    "delay": _duration("delay"),
    "run_at": _run_at,
    "expires": _duration("expires"),
    "key": check_key,
    "mode": _mode,
    "window": _duration("window"),
    "max_attempts": _whole("max_attempts", 1, MAX_ATTEMPTS),
    "headers": check_headers,
    "tags": check_tags,
    "flow": check_flow,
}


def policy_of(options: CallOptions) -> OnFailure:
    """What the edges of a call do when their parent fails."""
    return OnFailure(choice(options.get("on_failure", "cancel"), name="on_failure", among=_POLICIES))


def check_parents(task: str, namespace: str, after: object) -> None:
    """Refuse parents that are known to be in another namespace: one step of a store cannot see both."""
    for parent in cast("Sequence[object]", after) if isinstance(after, list | tuple) else [after]:
        other = getattr(parent, "namespace", None)
        if isinstance(other, str) and other != namespace:
            raise InvalidOption(
                f'a job waits for jobs of its own namespace: this call of "{task}" is in "{namespace}", '
                f'and a parent of it in "{other}"'
            )


def _edges(after: object, policy: OnFailure) -> tuple[Edge, ...]:
    parents = cast("Sequence[object]", after) if isinstance(after, list | tuple) else [after]
    return tuple(Edge(_parent(parent), policy) for parent in parents)


def _parent(parent: object) -> JobId:
    unsent = getattr(parent, "job", None)
    return check_job_id(unsent.id if isinstance(unsent, NewJob) else getattr(parent, "id", parent))
