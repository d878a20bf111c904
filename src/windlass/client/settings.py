"""The options of `app.queue(...)` and `app.lane(...)`, as users give them."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, cast

from windlass.client.options import check_known
from windlass.core.duration import Duration, micros
from windlass.core.event import Emit
from windlass.core.job import HIGHEST_PRIORITY, LOWEST_PRIORITY
from windlass.core.limits import Rate, check_rate, parse_rate
from windlass.core.option import choice, shown, whole
from windlass.core.order import MAX_WEIGHT
from windlass.core.settings import LaneSettings, QueueSettings, check_lane_settings, check_queue_settings
from windlass.core.units import MAX_INTEGER
from windlass.errors import InvalidOption

LIMITS: tuple[Literal["concurrency", "rate", "lane_concurrency", "lane_rate"], ...] = (
    "concurrency",
    "rate",
    "lane_concurrency",
    "lane_rate",
)
"""Those of a queue that a task may have, too, which then has a queue of its own."""


class QueueOptions(TypedDict, total=False):
    """What `app.queue(...)` takes. None says nothing."""

    concurrency: int | None
    rate: str | Rate | None
    lane_concurrency: int | None
    lane_rate: str | Rate | None
    order: Literal["band", "lane"] | None
    bands: Mapping[int, int] | None
    age_step: Duration | None
    sequence: bool | None
    emit: Literal["none", "final", "all"] | None
    retention: Duration | None
    retention_count: int | None
    result_ttl: Duration | None
    dead_retention: Duration | None


class LaneOptions(TypedDict, total=False):
    """What `app.lane(...)` takes. None says nothing."""

    weight: int | None
    concurrency: int | None
    rate: str | Rate | None


def queue_settings(options: QueueOptions) -> QueueSettings:
    """The settings that the options of a queue amount to; `InvalidOption` names the one that is wrong."""
    check_known(options, QueueOptions, "namespace", "weight")
    return check_queue_settings(QueueSettings(**_read(options)))


def lane_settings(options: LaneOptions) -> LaneSettings:
    """The settings that the options of a lane amount to."""
    check_known(options, LaneOptions)
    return check_lane_settings(LaneSettings(**_read(options)))


def _read(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in options.items() if value is not None}


def _value(name: str, value: Any) -> object:
    match name:
        case "concurrency" | "lane_concurrency" | "retention_count":
            return whole(value, name=name, least=1, most=MAX_INTEGER)
        case "rate" | "lane_rate":
            return _rate(name, value)
        case "order":
            return choice(value, name=name, among=("band", "lane"))
        case "bands":
            return _bands(value)
        case "sequence":
            return flag(value, name=name)
        case "emit":
            return Emit(choice(value, name=name, among=("none", "final", "all")))
        case "weight":
            return whole(value, name=name, least=1, most=MAX_WEIGHT)
        case _:
            return micros(value, name=name)


def flag(value: object, *, name: str) -> bool:
    """Return True or False, or refuse what is neither."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{name} must be True or False, not {shown(value)}")
    return value


def _rate(name: str, value: object) -> Rate:
    match value:
        case str():
            return parse_rate(value)
        case Rate(count=int(), per=int(), burst=int() | None):
            return check_rate(value)
        case _:
            raise InvalidOption(
                f'{name} must be text such as "100/s" or "5/m", or a Rate, not {shown(value)}'
            )


def _bands(value: object) -> dict[int, int]:
    if not isinstance(value, Mapping):
        raise InvalidOption(
            f"bands must map priorities to weights, such as {{10: 80, 0: 20}}, not {shown(value)}"
        )
    return {
        whole(priority, name="a priority of bands", least=LOWEST_PRIORITY, most=HIGHEST_PRIORITY): whole(
            weight, name=f"the weight of band {shown(priority)}", least=1, most=MAX_WEIGHT
        )
        for priority, weight in cast("Mapping[object, object]", value).items()
    }
