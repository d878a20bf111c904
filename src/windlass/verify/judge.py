"""The checker's findings, brought into the report."""

from pathlib import Path

from windlass.core.duration import micros
from windlass.core.order import MAX_TURN
from windlass.core.units import SECOND
from windlass.verify import history
from windlass.verify.checker import Rules, check_folder
from windlass.verify.ground import TIMES
from windlass.verify.report import Invariant, Report
from windlass.verify.waits import longest_wait

UNSEEN = 3
"""Jobs that one kill may catch between the mark in the table of leases and their first line."""


def judge(folder: Path, report: Report) -> None:
    """Check a history and write down what was found."""
    kills = sum(count for kind, count in report.injected.items() if "kill" in kind or kind in _ENDS_ALL)
    waited = longest_wait(history.read(folder))
    rules = Rules(
        beat=micros(TIMES["beat"], name="beat"),
        unseen_starts=UNSEEN * (1 + kills),
        redelivery=Rules().redelivery + waited,
        fairness_slack=Rules().fairness_slack + MAX_TURN - 1,  # real workers ask for many short jobs at once
    )
    verdict = check_folder(folder, rules)
    report.invariants = [
        Invariant(
            name=name.replace("_", " "),
            checked=finding.holds_for,
            violations=finding.violated,
            examples=finding.examples,
        )
        for name, finding in verdict.findings.items()
    ]
    report.duplicates = verdict.duplicates
    report.states = verdict.states
    report.slowest_redelivery = verdict.slowest_redelivery / SECOND
    report.figures["longest wait for a first run, in seconds"] = waited / SECOND


_ENDS_ALL = ("power cut", "store restored", "file replaced")
