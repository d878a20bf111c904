"""The options of `app.schedule(...)`, as users give them."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from windlass.client.options import check_known
from windlass.core.cron import Cron
from windlass.core.duration import Duration, instant, micros
from windlass.core.enqueuer import without_header
from windlass.core.job import NewJob
from windlass.core.option import shown
from windlass.core.schedule import SHORTEST_INTERVAL, CatchUp, Every, Once, Rule
from windlass.core.specification import Overlap, Specification, check_specification, template_of
from windlass.errors import InvalidOption


class ScheduleOptions(TypedDict, total=False):
    """What `app.schedule(...)` takes: one of `cron`, `every` and `at`, and how it is to be followed.

    `tz` is the zone of a cron rule. `start` and `end` bound the ticks; `jitter` delays the job of each by up
    to so much. `catch_up` says what becomes of ticks that were missed, and `overlap` of one that comes while
    the job of an earlier one is unfinished; see `windlass.core.schedule`.
    """

    cron: str
    every: Duration
    at: datetime
    tz: str
    start: datetime
    end: datetime
    jitter: Duration
    catch_up: CatchUp
    grace: Duration
    cap: int
    overlap: Overlap


def specification(job: NewJob, options: ScheduleOptions) -> Specification:
    """What a call and these options amount to; `InvalidOption` names what is wrong."""
    check_known(options, ScheduleOptions)
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    said = {name: read(given[name]) for name, read in _READERS.items() if name in given}
    return check_specification(
        Specification(rule=_rule(given), call=template_of(without_header(job)), **said)
    )


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "start": lambda value: instant(value, name="start"),
    "end": lambda value: instant(value, name="end"),
    "jitter": lambda value: micros(value, name="jitter"),
    "grace": lambda value: micros(value, name="grace"),
    "catch_up": lambda value: value,  # these are checked with the whole
    "overlap": lambda value: value,
    "cap": lambda value: value,
}


def _rule(given: Mapping[str, Any]) -> Rule:
    rules = [name for name in ("cron", "every", "at") if name in given]
    if len(rules) != 1:
        raise InvalidOption(
            f"a schedule takes one of cron=, every= and at=, got {' and '.join(rules) or 'none of them'}"
        )
    if "tz" in given and "cron" not in given:
        raise InvalidOption(f"tz is the zone of a cron rule; {rules[0]}= has none, got {shown(given['tz'])}")
    if "cron" in given:
        return Cron(given["cron"], given.get("tz", "UTC"))
    if "at" in given:
        return Once(instant(given["at"], name="at"))
    interval = micros(given["every"], name="every")
    if interval < SHORTEST_INTERVAL:
        raise InvalidOption(f"every must be at least 1 second, got {shown(given['every'])}")
    return Every(interval)
