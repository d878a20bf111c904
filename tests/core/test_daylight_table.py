"""The table in docs/schedules.md that says when rules fire where clocks change: made here, and compared.

`python -m tests.core.test_daylight_table` writes it anew.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from windlass.core.cron import Cron
from windlass.core.schedule import next_tick

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"
BEGIN, END = "<!-- daylight -->", "<!-- /daylight -->"
MICROSECONDS = 1_000_000
NIGHTS = (
    ("Europe/Paris", "2030-03-31", "forward: 02:00 becomes 03:00"),
    ("Europe/Paris", "2030-10-27", "back: 03:00 becomes 02:00"),
    ("America/Havana", "2030-03-10", "forward at midnight: 00:00 becomes 01:00"),
    ("Australia/Lord_Howe", "2030-10-06", "forward by half an hour: 02:00 becomes 02:30"),
    ("Australia/Lord_Howe", "2030-04-07", "back by half an hour: 02:00 becomes 01:30"),
)
"""Zones and days, with what happens in them."""
RULES = ("30 2 * * *", "0 0 * * *", "15,45 1-2 * * *", "30 * * * *", "*/30 1-3 * * *")
HOURS = 4
"""Of the day that are shown: what happens later is as on any other day."""


def fired(rule: Cron, day: str) -> list[datetime]:
    """When a rule fires in the first hours of a day, by the clock on the wall."""
    zone = ZoneInfo(rule.tz)
    midnight = datetime.fromisoformat(day).replace(tzinfo=zone).astimezone(UTC)
    at, found = int(midnight.timestamp()) * MICROSECONDS - 1, list[datetime]()
    end = int((midnight + timedelta(hours=HOURS)).timestamp()) * MICROSECONDS
    while (tick := next_tick(rule, at)) is not None and tick < end:
        found.append(datetime.fromtimestamp(tick // MICROSECONDS, zone))
        at = tick
    return found


def shown(moment: datetime) -> str:
    """As a clock shows it; the second time around with a mark."""
    return f"{moment:%H:%M}{'′' if moment.fold else ''}"


def cell(rule: str, zone: str, day: str) -> str:
    return " ".join(shown(moment) for moment in fired(Cron(rule, zone), day)) or "–"


def table() -> str:
    heads = " | ".join(f"`{rule}`" for rule in RULES)
    lines = [f"| zone and day | clocks go | {heads} |", "|---" * (len(RULES) + 2) + "|"]
    for zone, day, what in NIGHTS:
        cells = " | ".join(cell(rule, zone, day) for rule in RULES)
        lines.append(f"| {zone}, {day} | {what} | {cells} |")
    return "\n".join(lines)


def page_with_table(text: str) -> str:
    return re.sub(f"(?s){BEGIN}.*{END}", lambda _: f"{BEGIN}\n{table()}\n{END}", text)


def test_the_table_in_the_docs_is_what_rules_do() -> None:
    text = PAGE.read_text()
    assert BEGIN in text
    assert page_with_table(text) == text, "python -m tests.core.test_daylight_table writes it anew"


def test_a_fixed_time_fires_once_whatever_the_clocks_do() -> None:
    for zone, day, _ in NIGHTS:
        assert len(fired(Cron("30 2 * * *", zone), day)) == 1
        assert len(fired(Cron("0 0 * * *", zone), day)) == 1


def test_a_repeated_hour_is_marked() -> None:
    assert cell("30 * * * *", "Europe/Paris", "2030-10-27") == "00:30 01:30 02:30 02:30′"
    assert cell("30 2 * * *", "Europe/Paris", "2030-03-31") == "03:00"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
