"""Cron rules: five fields, a zone, and what happens when clocks are put forward or back.

Fields: minute (0-59), hour (0-23), day-of-month (1-31), month (1-12 or JAN-DEC), day-of-week (0-7 or
SUN-SAT; 0 and 7 are Sunday). A field is `*`, a number or name, a range `1-5`, a step `*/15`, `10-40/10` or
`5/20` (from 5 on), or a list of these. Day-of-month also takes `L` (last day) and `LW` (last weekday),
day-of-week also `5L` (last Friday) and `MON#2` (second Monday). When day-of-month or day-of-week starts with
`*`, a day must match both; otherwise either is enough, as in Debian. Nicknames: @hourly, @daily or @midnight,
@weekly, @monthly, @yearly or @annually.

Where clocks change (fault 28; the rule of Debian's cron):

- A rule without `*` in minute and hour names times of day. Each nominal time fires once: where clocks repeat
  an hour, at its first occurrence; where they skip one, at the end of the gap, as one tick for all nominal
  times inside it.
- A rule with `*` in minute or hour (`*/15` has one) follows elapsed time: it fires whenever the wall clock
  shows a matching time, so twice in a repeated hour and not at all in a skipped one.

cronsim reads the fields and walks the calendar, but without zones. Compared with a scan of every minute, its
own handling of zones misses or invents ticks around half-hour changes (Lord Howe), around changes at midnight
(Havana), and when asked from within a repeated hour; so zones are handled here.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from windlass.core.option import shown
from windlass.core.units import DAY, HOUR, SECOND, Micros
from windlass.errors import InvalidOption

LONGEST_EXPRESSION = 256

# The rarest possible rule is 29 February on one weekday around 2100, which is no leap year: 40 years.
_HORIZON: Micros = 50 * 366 * DAY
# Longer than any repeated stretch since 1970 (7 hours: Antarctica/Vostok, 1994).
_LOOK: Micros = 12 * HOUR

# A rule that met nothing but gaps so often, mostly once a year, is taken to meet nothing else ever.
_MOST_GAPS = 16
# From when to look whether a rule fires at all. Not from now: a rule that was valid must stay so when read.
_SOON: Micros = 1_767_225_600 * SECOND  # 2026

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L or LW",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7, SUN-SAT, 5L (last Friday) or MON#2 (second Monday)",
}
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}", re.ASCII)
# Names that mean something else on every machine, or count leap seconds.
_NOT_ZONES = ("localtime", "posixrules", "Factory", "posix", "right", "SystemV")


class Cron(msgspec.Struct, frozen=True, tag_field="rule", tag="cron"):
    """Fires when the wall clock of `tz` matches the expression; refused when that can never be."""

    expression: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        _check(_text(self.expression, 'expression, such as "0 3 * * *"'), _text(self.tz, 'tz, such as "UTC"'))

    def next_tick(self, after: Micros) -> Micros | None:
        """The first tick strictly after a time, within 50 years."""
        return _next_tick(_read(self.expression), _zone(self.tz), after)

    def latest_tick(self, at: Micros) -> Micros | None:
        """The last tick at or before a time, within 50 years."""
        return _latest_tick(_read(self.expression), _zone(self.tz), at)

    def describe(self) -> str:
        """The rule in English."""
        return f"{CronSim(_read(self.expression).fields, _EPOCH).explain()}, {self.tz}"


class _Reading(msgspec.Struct, frozen=True):
    """An expression that cronsim can read, and which of the two ways it takes where clocks change."""

    fields: str
    by_elapsed_time: bool


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidOption(f"a cron rule takes text as its {name}, not {shown(value)}")
    return value


# Bounded caches: schedules are read far more often than written, and expressions can come from strangers.
@lru_cache(maxsize=1024)
def _check(expression: str, tz: str) -> None:
    reading, zone = _read(expression), _zone(tz)
    if _next_tick(reading, zone, _SOON) is None:
        raise InvalidOption(
            f"cron expression {shown(expression)} never fires in {tz}: "
            "clocks there skip each of its times. Drop the * in minute and hour, or use another hour"
        )


@lru_cache(maxsize=1024)
def _read(expression: str) -> _Reading:
    """Check and expand an expression; the work is bounded by its length."""
    if len(expression) > LONGEST_EXPRESSION:
        raise InvalidOption(
            f"a cron expression has at most {LONGEST_EXPRESSION} characters, this one {len(expression)}"
        )
    parts = _expand(expression).split()
    if len(parts) != len(_FIELDS):
        raise InvalidOption(
            f"a cron expression has five fields ({', '.join(_FIELDS)}), not {len(parts)} as in "
            f"{shown(expression)}; for seconds use an interval"
        )
    for field, part in zip(_FIELDS, parts, strict=True):
        _check_field(expression, field, part)
    if not _has_a_day(parts):
        raise InvalidOption(
            f"cron expression {shown(expression)} never fires: no day has day-of-month {shown(parts[2])}, "
            f"month {shown(parts[3])} and day-of-week {shown(parts[4])} together"
        )
    return _Reading(" ".join(parts), "*" in parts[0] + parts[1])


def _expand(expression: str) -> str:
    text = expression.strip()
    if not text.startswith("@"):
        return text
    if (fields := _NICKNAMES.get(text.lower())) is None:
        raise InvalidOption(f"{shown(text)} is not a cron nickname; there are {', '.join(_NICKNAMES)}")
    return fields


def _check_field(expression: str, field: str, part: str) -> None:
    # Each field alone, to know which one is wrong without reading cronsim's messages. ASCII alone, because
    # cronsim upper-cases, and that makes an I of a dotless ı.
    alone = " ".join(part if name == field else "*" for name in _FIELDS)
    if not part.isascii() or _calendar(alone) is None:
        raise InvalidOption(
            f"cron expression {shown(expression)}: {field} cannot be {shown(part)}; "
            f"it takes {_FIELDS[field]}, *, lists (1,2), ranges (1-5) and steps (*/5)"
        )


def _calendar(fields: str) -> CronSim | None:
    try:
        return CronSim(fields, _EPOCH)
    except CronSimError:
        return None


@lru_cache(maxsize=1)
def _shapes() -> dict[tuple[int, int], date]:
    """A first of month for every (length, weekday it begins on) that there is; 28 years have them all."""
    firsts = [date(year, month, 1) for year in range(2000, 2028) for month in range(1, 13)]
    return {(_length(first), first.weekday()): first for first in firsts}


def _length(first: date) -> int:
    return ((first.replace(day=28) + timedelta(days=4)).replace(day=1) - first).days


def _has_a_day(parts: list[str]) -> bool:
    """Whether any day matches: at most 28 shapes of a month to look at, where cronsim would walk 50 years."""
    calendar = _calendar(" ".join(parts))
    if calendar is None:  # each field is right alone, so cronsim refuses the day: 30 February
        return False
    lengths = {_length(date(year, month, 1)) for year in (2000, 2001) for month in calendar.months}
    return any(
        calendar.match_day(first.replace(day=day))
        for (length, _), first in _shapes().items()
        if length in lengths
        for day in range(1, length + 1)
    )


@lru_cache(maxsize=1024)
def _zone(tz: str) -> ZoneInfo:
    """Load a zone by its name, which is checked first: it must never be a path out of the zones' folder."""
    if _ZONE.fullmatch(tz) and not tz.startswith(_NOT_ZONES):
        try:
            return ZoneInfo(tz)
        except (OSError, ValueError, ZoneInfoNotFoundError):  # OSError: a folder, such as "Europe"
            pass
    raise InvalidOption(f'{shown(tz)} is not a known time zone; names look like "Europe/Paris" or "UTC"')


# From here on, readings of a wall clock are microseconds too: what it shows, written as if it were UTC.


def _next_tick(reading: _Reading, zone: ZoneInfo, after: Micros) -> Micros | None:
    wall = after + _offset(zone, after)
    best: Micros | None = None
    # Times already shown come again when clocks are about to be put back.
    start = wall - (_about_to_repeat(zone, after) if reading.by_elapsed_time else 0)
    for nominal, ticks in _walk(reading, zone, start):
        later = [tick for tick in ticks if tick > after]
        best = min(later if best is None else [best, *later], default=None)
        if best is not None and nominal > wall:
            break
    return best


def _latest_tick(reading: _Reading, zone: ZoneInfo, at: Micros) -> Micros | None:
    wall = at + _offset(zone, at)
    best: Micros | None = None
    start = wall - wall % SECOND + SECOND + _just_repeated(zone, at)
    for nominal, ticks in _walk(reading, zone, start, back=True):
        earlier = [tick for tick in ticks if tick <= at]
        best = max(earlier if best is None else [best, *earlier], default=None)
        if best is not None and nominal <= wall:
            break
    return best


def _walk(
    reading: _Reading, zone: ZoneInfo, start: Micros, *, back: bool = False
) -> Iterator[tuple[Micros, tuple[Micros, ...]]]:
    """Nominal times after `start` on the wall clock (or before, going back), with the instants of each."""
    calendar = CronSim(reading.fields, _moment(start), reverse=back)
    gaps = 0
    while (moment := next(calendar, None)) is not None:
        nominal = _since_epoch(moment)
        if abs(nominal - start) > _HORIZON or gaps > _MOST_GAPS:
            return
        first, second = _offsets_when_shown(zone, moment)
        if first == second:
            yield nominal, (nominal - first,)
        elif first > second:
            yield nominal, (nominal - first, nominal - second)[: 1 + reading.by_elapsed_time]
        elif not reading.by_elapsed_time:
            yield nominal, (_gap_end(zone, nominal, first, second),)
        else:
            # Out of the gap in one step: a rule that matches in gaps alone would cost a look at each minute.
            gaps += 1
            end = _gap_end(zone, nominal, first, second)
            calendar = CronSim(
                reading.fields, _moment(end + first if back else end + second - SECOND), reverse=back
            )


def _gap_end(zone: ZoneInfo, nominal: Micros, before: Micros, after: Micros) -> Micros:
    """The instant at which clocks went forward over `nominal`. Bisected: zones do not list their changes."""
    low, high = nominal - after, nominal - before
    while high - low > SECOND:
        middle = low + (high - low) // (2 * SECOND) * SECOND
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def _about_to_repeat(zone: ZoneInfo, at: Micros) -> Micros:
    """By how much clocks will be put back before they show again what they show now; else 0."""
    now = _offset(zone, at)
    step = now - _offset(zone, at + _LOOK)
    return step if step > 0 and _offset(zone, at + step) < now else 0


def _just_repeated(zone: ZoneInfo, at: Micros) -> Micros:
    """By how much the clocks were put back, if they show this time for the second time; else 0."""
    now = _offset(zone, at)
    step = _offset(zone, at - _LOOK) - now
    return step if step > 0 and _offset(zone, at - step) > now else 0


def _offset(zone: ZoneInfo, at: Micros) -> Micros:
    return _of(_moment(at).astimezone(zone).utcoffset())


def _offsets_when_shown(zone: ZoneInfo, wall: datetime) -> tuple[Micros, Micros]:
    """The offsets of a reading's two meanings (PEP 495): falling in a repeated hour, rising in a gap."""
    local = wall.replace(tzinfo=zone)
    return _of(local.utcoffset()), _of(local.replace(fold=1).utcoffset())


def _of(offset: timedelta | None) -> Micros:
    return (offset or timedelta()) // _MICROSECOND


def _moment(at: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def _since_epoch(moment: datetime) -> Micros:
    return (moment - _EPOCH) // _MICROSECOND
