"""Numbers that pages promise are those of the code: each sentence is made from the constant it tells of."""

# ruff: noqa: E501 - a claim is written in one line

import re
from pathlib import Path

import pytest

from windlass.admin import audit, idempotency, listing
from windlass.admin.doctor import OTHER_VARIABLES
from windlass.admin.jobs import LOOKS_FOR_COUNT
from windlass.api import callers, connection
from windlass.api import options as api_options
from windlass.api.shapes import LONGEST_WAIT, MOST_LEASES
from windlass.broker.contract import Options
from windlass.broker.postgres.url import CONNECTIONS
from windlass.broker.redis.keys import keys
from windlass.broker.redis.policies import REDIS_RETENTION
from windlass.broker.redis.url import TIMEOUT
from windlass.broker.sqlite.filesystem import RESERVE
from windlass.broker.sqlite.library import PATIENCE as FORK_SQLITE
from windlass.broker.sqlite.store import LOCK_TIMEOUT
from windlass.client.task import HARD_AFTER
from windlass.core import alert, job, names, secret, session, settlement, strike
from windlass.core.retry import RetryPolicy, crash_delay
from windlass.core.schedule import CAP, GRACE
from windlass.core.settings import Retention
from windlass.core.units import DAY, HOUR, MINUTE, SECOND
from windlass.core.webhook import DELIVERIES, LONGEST_URL
from windlass.forks import CONNECTING
from windlass.observe import exposition, stock
from windlass.observe.history import place, reader
from windlass.worker import (
    alerting,
    asking,
    delivering,
    keyring,
    leaving,
    posting,
    supervised_child,
    supervisor,
    table,
)
from windlass.worker.alerting import EVERY as ALERTS
from windlass.worker.options import Group, WorkerOptions
from windlass.worker.worker import rows_for

DOCS = Path(__file__).parents[1] / "docs"
SOURCE = (DOCS.parent / "src" / "windlass" / "bench" / "tasks.py").read_text()
BENCH = r'NAMESPACE = "(\w+)"'
WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 7: "seven", 10: "ten", 12: "twelve", 18: "18"}
LIMITS = api_options.ServeOptions()
DEADLINES = connection.Deadlines()
TABLE = table._size(rows_for([Group(slots=WorkerOptions().concurrency, queues=("default",))])) >> 10
WAITS = [
    delivering.RETRY.delay(attempt, draw=0.0) / HOUR for attempt in range(1, delivering.RETRY.max_attempts)
]

CLAIMS = [
    ("alerts.md", f"check the alerts every {WORDS[int(ALERTS)]} seconds"),
    ("alerts.md", f"at least every {WORDS[int(alerting.SELDOM)]} seconds"),
    ("alerts.md", f"takes longer than {ALERTS / alerting.SHARE:g} s"),
    ("alerts.md", f"thresholds (default {alert.CLEAR})"),
    ("coming-from-celery.md", f"jobs worth about {asking.PREFETCH * 1000:.0f} ms"),
    ("coming-from-celery.md", f"{WORDS[RetryPolicy().max_attempts]} attempts in all"),
    ("configuration.md", f"`?lock_timeout={LOCK_TIMEOUT:.0f}` is the number of seconds that a call waits"),
    ("configuration.md", f"less than {RESERVE >> 20} MiB are free"),
    ("configuration.md", f"`?timeout={TIMEOUT:.0f}` is the number of seconds that a call waits"),
    ("configuration.md", f"`?connections={CONNECTIONS}` is the largest number"),
    ("configuration.md", f"the store's: {Retention().retention // HOUR} h"),
    ("configuration.md", f"on Redis {REDIS_RETENTION.retention // HOUR} h, and {REDIS_RETENTION.retention_count:,} per queue"),
    ("configuration.md", f"the store's: {Retention().result_ttl // HOUR} h | how long results"),
    ("configuration.md", f"the store's: {Retention().dead_retention // DAY} days"),
    ("control.md", f"(up to {strike.MOST_CONDITIONS})"),
    ("control.md", f"There are at most {strike.MOST_STRIKES}. Tasks without a strike"),
    ("control.md", f"fewer than {WORDS[secret.SHORTEST]} characters"),
    ("control.md", f"more than {secret.MOST:,} secret values"),
    ("control.md", f"up to {settlement.HOLD_CAP // MINUTE} minutes"),
    ("dashboard.md", f"for {WORDS[callers.LOGIN_TTL // HOUR]} hours"),
    ("deploy-containers.md", f"(about {round(TABLE, -1)} KiB each)"),
    ("deploy-containers.md", f"{supervised_child.KILL_AFTER:.0f} s for children that do not end, up to {supervisor.STORE_PATIENCE:.0f} s to tell the store"),
    ("deploy-systemd.md", f"{supervised_child.KILL_AFTER:.0f} s for children that do not end, up to {supervisor.STORE_PATIENCE:.0f} s to tell the store"),
    ("deploy-systemd.md", {1: "waits one second for threads"}[int(leaving.PATIENCE)]),
    ("flows.md", f"at most {job.MAX_PARENTS:,} others"),
    ("forking.md", f"calls the SQLite library, for at most {FORK_SQLITE:.0f} seconds"),
    ("forking.md", f"opening a connection, for at most {CONNECTING._patience:.0f} seconds"),
    ("http.md", f"Wait for the end for up to {LONGEST_WAIT} s"),
    ("http.md", f"the same request within {idempotency.KEPT // HOUR} hours"),
    ("http.md", f'takes up to {job.GROUP_JOBS:,} such calls (`{{"jobs": [...]}}`), {job.GROUP_BYTES >> 20} MiB'),
    ("http.md", f"a page looks at about {listing.LOOKS * 1_000:,} jobs"),
    ("http.md", f"of up to {LOOKS_FOR_COUNT * 1_000:,} jobs looked at"),
    ("http.md", f"`limit` up to {MOST_LEASES}"),
    ("http.md", f"a cookie for {WORDS[callers.LOGIN_TTL // HOUR]} hours"),
    ("http.md", f"may send {LIMITS.rate:,} requests a second"),
    ("http.md", f"a process keeps at most {LIMITS.waiting:,} long polls"),
    ("http.md", f"A process keeps at most {LIMITS.connections:,} connections (`--connections`)"),
    ("http.md", f"{DEADLINES.head:.0f} s to send the head of a request ({connection.LONGEST_HEAD >> 10} KiB at the most)"),
    ("http.md", f"{LIMITS.body_timeout:.0f} s for its body, and {DEADLINES.read:.0f} s to read"),
    ("http.md", f"kept for {DEADLINES.idle:.0f} s between two requests"),
    ("idempotency.md", f"at most {session.MEMOS} steps and {session.MEMO_BYTES >> 20} MiB"),
    ("observability.md", f"Beyond {exposition.SERIES} of a metric"),
    ("observability.md", f"at most every {WORDS[int(stock.KEPT)]} seconds"),
    ("observability.md", f"copy the log every {WORDS[int(reader.EVERY)]} seconds"),
    ("observability.md", f"for how long; {place.KEPT // DAY} days by default"),
    ("observability.md", f"the last {Options().events_kept:,} events"),
    ("performance.md", f"the namespace `{re.findall(BENCH, SOURCE)[0]}`"),
    ("postgres.md", f"| `connections` | {CONNECTIONS} |"),
    ("redis.md", f"in {len(keys('windlass'))} keys"),
    ("redis.md", f"| `timeout` | {TIMEOUT:.0f} |"),
    ("retries-and-errors.md", f"after {', '.join(f'{crash_delay(n) // SECOND}' for n in (2, 3, 4))}… up to {crash_delay(99) // SECOND} s, alone"),
    ("retries-and-errors.md", f"keeps all of it for {Retention().dead_retention // DAY} days"),
    ("retries-and-errors.md", f"shows the last {audit.KEPT:,}"),
    ("retries-and-errors.md", f"doubles from {settlement.HOLD_FIRST // SECOND} s to {settlement.HOLD_CAP // MINUTE} min"),
    ("retries-and-errors.md", f"held for {WORDS[settlement.HOLD_LIMIT // DAY]} days becomes a dead letter"),
    ("schedules.md", {60: "a minute by default"}[GRACE // SECOND]),
    ("schedules.md", f"; {CAP} by default"),
    ("tasks.md", f"up to {names.MAX_TAGS} short texts"),
    ("tasks.md", {100: "kept with the job: the last hundred"}[session.LOG_LINES]),
    ("tasks.md", f"twice `timeout`, at most {HARD_AFTER // SECOND} s more"),
    ("timeouts-and-cancelling.md", f"at most {WORDS[HARD_AFTER // SECOND]} seconds more"),
    ("webhooks.md", f"{WORDS[delivering.RETRY.max_attempts]} times in all"),
    ("webhooks.md", {1: "for one to two and a half hours"}[round(sum(WAITS))]),
    ("webhooks.md", {3_600: "`Retry-After` is followed up to an hour"}[delivering.LONGEST_PAUSE]),
    ("webhooks.md", f"A receiver has {posting.ANSWERING:.0f} s"),
    ("webhooks.md", f"with {WORDS[DELIVERIES.lane_concurrency or 0]} slots"),
    ("webhooks.md", f"longer than {LONGEST_URL:,} characters"),
    ("webhooks.md", {DAY: "with the old and the new secret for a day"}[keyring.BOTH]),
    ("webhooks.md", f"The log holds the last {Options().events_kept:,} events"),
]  # fmt: skip


@pytest.mark.parametrize(("page", "claim"), CLAIMS)
def test_a_number_on_a_page_is_that_of_the_code(page: str, claim: str) -> None:
    text = re.sub(r"\s+", " ", (DOCS / page).read_text())
    assert claim in text, f"docs/{page} does not say: {claim}"


def test_the_variables_of_the_command_line_are_described() -> None:
    section = (DOCS / "configuration.md").read_text().partition("## Variables of the command line\n")[2]
    described = re.findall(r"^\| `(WINDLASS_\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert set(described) == set(OTHER_VARIABLES)
