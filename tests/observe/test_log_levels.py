"""What the processes of a worker log, at which level and in which form: asked for by options or variables."""

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from windlass.observe.logs import TextFormatter

ROOT = Path(__file__).parents[2]
SITE = ROOT / "examples" / "django_site"
NOON = datetime.fromisoformat("2026-07-01T12:00:00+00:00").timestamp()

BEGIN = """
import logging, sys
from windlass.observe.logs import begin_logging
ours, theirs = logging.getLogger("windlass.run"), logging.getLogger("shop")
def all_levels(logger):
    for level in (10, 15, 20, 30, 40):
        logger.log(level, "%s at %d", logger.name, level)
"""


def said(program: str, **variables: str) -> list[str]:
    """What a process writes to stderr."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        check=True, timeout=60, capture_output=True, text=True, env={**kept, **variables},
    )  # fmt: skip
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("level", "first"), [("", 20), ("debug", 10), ("run", 15), ("INFO", 20), ("warning", 30), ("error", 40)]
)
def test_the_level_is_that_of_all_loggers_where_the_app_sets_up_none(level: str, first: int) -> None:
    lines = said("begin_logging(); all_levels(ours); all_levels(theirs)", WINDLASS_LOG_LEVEL=level)
    levels = [each for each in (10, 15, 20, 30, 40) if each >= first]
    assert [line.split(" ", 3)[3] for line in lines] == [
        *(f"windlass.run at {each}" for each in levels),
        *(f"shop at {each}" for each in levels),
    ]


def test_handlers_of_the_app_stay_and_get_our_lines() -> None:
    app = "logging.basicConfig(format='mine: %(message)s'); begin_logging()"
    app += "; all_levels(ours); all_levels(theirs)"
    assert said(app) == [
        f"mine: {name} at {level}" for name in ("windlass.run", "shop") for level in (30, 40)
    ]
    run = "mine: windlass.run at 15"
    assert said(app, WINDLASS_LOG_LEVEL="run")[0] == run, "it was asked for"
    assert "mine: shop at 20" not in said(app, WINDLASS_LOG_LEVEL="run"), "shop is the app's"
    assert json.loads(said(app, WINDLASS_LOG_FORMAT="json")[0])["message"] == "windlass.run at 30"


def test_a_logger_with_a_handler_of_its_own_is_not_written_twice() -> None:
    program = """
handler = logging.StreamHandler()
handler.setFormatter(logging.Formatter("mine: %(message)s"))
handler.setLevel("ERROR")
handler.addFilter(lambda record: "quiet" not in record.getMessage())
theirs.addHandler(handler)
begin_logging()
logging.getLogger("shop.mail").error("loud")
theirs.error("quiet")
theirs.warning("low")
ours.error("ours")
"""
    theirs, *others = said(program)
    assert theirs == "mine: loud"
    assert [line.split(" ", 3)[3] for line in others] == ["quiet", "low", "ours"]


def test_loggers_that_dictconfig_has_disabled_are_heard() -> None:
    app = (
        "import logging.config; logging.config.dictConfig({'version': 1}); begin_logging(); all_levels(ours)"
    )
    assert len(said(app)) == 3


def test_a_logger_can_be_turned_down() -> None:
    app = "begin_logging(); ours.setLevel('ERROR'); all_levels(ours)"
    assert [line.split(" ", 3)[3] for line in said(app)] == ["windlass.run at 40"]


# --- times --------------------------------------------------------------------------------------------------


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        yield patch
    time.tzset()


def test_a_text_time_has_the_offset_of_the_zone_that_the_program_has_set(zone: pytest.MonkeyPatch) -> None:
    formatter = TextFormatter()
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "sent", None, None)
    record.created = NOON + 0.1234
    times = {}
    for name in ("UTC", "Asia/Kathmandu", "America/New_York"):
        zone.setenv("TZ", name)
        time.tzset()
        times[name] = formatter.format(record).split(" ", 1)[0]
    assert times == {
        "UTC": "2026-07-01T12:00:00.123+00:00",
        "Asia/Kathmandu": "2026-07-01T17:45:00.123+05:45",
        "America/New_York": "2026-07-01T08:00:00.123-04:00",
    }


def test_django_sets_a_zone_while_logs_are_written() -> None:
    program = f"""
import os
os.chdir({str(SITE)!r}); sys.path.insert(0, os.getcwd())
begin_logging()
theirs.warning("before")
from django.conf import settings
settings.TIME_ZONE
theirs.warning("after")
"""
    lines = said(program, TZ="UTC", DJANGO_SETTINGS_MODULE="project.settings", SITE_KEY="any")
    before, after = [datetime.fromisoformat(line.split(" ", 1)[0]) for line in lines]
    assert before.utcoffset() == datetime.now(ZoneInfo("UTC")).utcoffset()
    assert after.utcoffset() == after.astimezone(ZoneInfo("Europe/Paris")).utcoffset()
    assert before <= after


# --- what the page says -------------------------------------------------------------------------------------


def test_the_page_has_every_logger() -> None:
    sources = [
        path.read_text() for path in (ROOT / "src" / "windlass").rglob("*.py") if "verify" not in path.parts
    ]
    named = {name for text in sources for name in re.findall(r'getLogger\("(windlass\.\w+)"\)', text)}
    named.add("windlass.run")
    page = (ROOT / "docs" / "logging-and-sentry.md").read_text()
    assert set(re.findall(r"^\| `(windlass\.\w+)` \|", page, re.MULTILINE)) == named
