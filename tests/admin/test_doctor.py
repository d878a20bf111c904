"""What the doctor finds: well, worth a note, worrying, or wrong."""

import asyncio
import re
import time
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.admin.doctor import Finding, Level, examine, safe_url
from windlass.admin.queues import Queues
from windlass.clock import ManualClock, SystemClock
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import QueueSettings
from windlass.core.units import SECOND


def examined(app: Windlass, **environment: str) -> list[Finding]:
    async def look() -> list[Finding]:
        try:
            return [finding async for finding in examine(app, environment)]
        finally:
            await app.aclose()

    return asyncio.run(look())


def made(tmp_path: Path, **settings: object) -> Windlass:
    app = Windlass(f"sqlite:///{tmp_path / 'windlass.db'}", **settings)  # type: ignore[arg-type]

    @app.task
    def work() -> None: ...

    return app


def bad(findings: list[Finding]) -> list[tuple[str, str]]:
    return [
        (finding.check, finding.text)
        for finding in findings
        if finding.level in (Level.WARNING, Level.PROBLEM)
    ]


def said(findings: list[Finding], check: str) -> list[str]:
    return [finding.text for finding in findings if finding.check == check]


def test_a_fresh_store_is_well(tmp_path: Path) -> None:
    findings = examined(made(tmp_path))
    assert bad(findings) == []
    assert said(findings, "durability")[0].startswith("an accepted job is in the file, synced to disk")
    assert said(findings, "namespace") == ["windlass"]
    assert said(findings, "workers") == ["none is alive"]
    assert said(findings, "capabilities") == [
        "durable, shared; not: transactional enqueue, transactional completion"
    ]
    assert {"windlass", "python", "sqlite", "app", "store", "clock", "jobs"} <= {
        finding.check for finding in findings
    }


def test_permissions_and_size_of_the_file(tmp_path: Path) -> None:
    app = made(tmp_path)
    path = tmp_path / "windlass.db"
    examined(app)
    path.chmod(0o600)
    findings = examined(app)
    assert "-rw-------" in said(findings, "file")[0]
    assert said(findings, "permissions") == []
    assert said(findings, "space")[0].endswith("free, no max_size")
    path.chmod(0o604)
    assert [finding.level for finding in examined(app) if finding.check == "permissions"] == [Level.NOTE]
    path.chmod(0o606)
    assert [finding.level for finding in examined(app) if finding.check == "permissions"] == [Level.PROBLEM]


def test_a_file_near_its_limit(tmp_path: Path) -> None:
    app = made(tmp_path, max_size=100_000)
    examined(app)
    (finding,) = [finding for finding in examined(app) if finding.check == "space"]
    assert finding.level is Level.NOTE
    assert finding.text.endswith("nothing is accepted once payloads and results pass max_size 0.1 MiB")
    assert finding.fix == "run or cancel waiting jobs, discard dead letters, or raise max_size"


def test_a_store_that_does_not_open_is_a_problem_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "windlass.db").write_bytes(b"this is no database" * 100)
    problems = [finding for finding in examined(made(tmp_path)) if finding.level is Level.PROBLEM]
    assert len(problems) == 1
    assert "is not a SQLite database" in problems[0].text
    missing = Windlass(f"sqlite:///{tmp_path}/missing/windlass.db")
    assert any("does not exist; create it first" in text for _, text in bad(examined(missing)))


class Ahead(SystemClock):
    """A clock that somebody set wrong."""

    def now(self) -> int:
        return super().now() + 90 * SECOND


def test_a_store_of_another_clock(tmp_path: Path) -> None:
    (finding,) = [finding for finding in examined(made(tmp_path, clock=Ahead())) if finding.check == "clock"]
    assert finding.level is Level.WARNING
    assert re.fullmatch(r"the store's clock is (90\.0|8\d\.\d) s ahead of this one", finding.text)


def test_misspelt_variables_and_a_short_ttl(tmp_path: Path) -> None:
    findings = examined(made(tmp_path, session_ttl=12), WINDLASS_SESION_TTL="3", WINDLASS_APP="a:b", PATH="x")
    warnings = [finding for finding in findings if finding.level is Level.WARNING]
    assert (warnings[0].text, warnings[0].fix) == (
        "WINDLASS_SESION_TTL is not a setting",
        "did you mean WINDLASS_SESSION_TTL?",
    )
    assert len(warnings) == 2
    assert "less than 3 beats" in warnings[1].text


def test_no_tasks_and_a_store_inside_the_process() -> None:
    checks = [check for check, _ in bad(examined(Windlass("memory://")))]
    assert checks == ["app", "durability", "capabilities"]


def test_ready_jobs_without_a_worker_silent_workers_and_crashes(tmp_path: Path) -> None:
    clock = ManualClock(time.time_ns() // 1_000)
    app = made(tmp_path, clock=clock)
    app.tasks["work"].enqueue()

    async def arrange() -> None:
        broker = await app.connection.broker()
        for session in ("alive", "crashed"):
            info = SessionInfo(host="box", pid=7, queues=("other",), slots=2)
            await broker.beat([Beat(session=session, open=info)])
        await broker.end_session("crashed", Cause(CauseKind.CRASH, "signal 9"), [])
        for _ in range(20):  # the first pass only starts the liveness clock
            clock.advance(SECOND)
            await broker.sweep(limit=10)

    app.connection.run(arrange())
    clock.advance(-20 * SECOND)
    findings = examined(app)
    assert said(findings, "workers") == [
        "1 alive on 1 host, 2 slots",
        "process 7 on box is silent for 19.0 s",
        "1 crashed or were lost within the last hour",
    ]
    assert ("jobs", 'queue "default" has ready jobs, and no live worker serves it') in bad(findings)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///windlass.db", "sqlite:///windlass.db"),
        ("sqlite:////var/lib/windlass.db?lock_timeout=3", "sqlite:////var/lib/windlass.db?lock_timeout=…"),
        ("redis://me:secret@example.com:6379/0", "redis://me@example.com:6379/0"),
        ("redis://:secret@example.com/0?password=secret", "redis://@example.com/0?password=…"),
        ("postgresql://u:s%40cret@[::1]:5432/db", "postgresql://u@[::1]:5432/db"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert safe_url(url) == shown
    assert "secret" not in safe_url(url)
    assert "cret@" not in safe_url(url)


def test_overrides_and_newer_settings_are_noted(tmp_path: Path) -> None:
    newer = made(tmp_path, revision=3)

    async def override() -> None:
        await Queues(await newer.connection.broker()).override("default", QueueSettings(concurrency=1))

    newer.connection.run(override())
    newer.close()
    notes = said(examined(made(tmp_path, revision=2)), "settings")
    assert notes == [
        'queue "default" is overridden by an operator',
        'queue "default" has settings of revision 3; this code is 2',
    ]
