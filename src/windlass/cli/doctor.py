"""`windlass doctor`: look for problems of a setup."""

import os
from collections.abc import Sequence

from windlass.admin.doctor import examine
from windlass.admin.findings import Finding, Level
from windlass.cli import parameters as given
from windlass.cli.loading import load_app
from windlass.cli.opening import in_loop
from windlass.cli.output import Column, each, say_aside, show


def examine_app(app: given.App, /, *, json: given.Json = False) -> int:
    """Check store, clock, files, workers and settings. The exit code is 1 if there is a problem."""
    loaded = load_app(app)

    findings: list[Finding] = []

    async def run() -> None:
        findings.extend([finding async for finding in examine(loaded, os.environ)])
        await show(each(findings), _COLUMNS, json=json, nothing="")

    in_loop(loaded, run)
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    if problems and not json:
        say_aside(f"windlass: {problems} problem{'' if problems == 1 else 's'}")
    return 1 if problems else 0


_COLUMNS: Sequence[Column[Finding]] = (
    Column("check", lambda finding: finding.check),
    Column("level", lambda finding: finding.level),
    Column("what", lambda finding: finding.text, wraps=True),
    Column("what to do", lambda finding: finding.fix, wraps=True),
)
