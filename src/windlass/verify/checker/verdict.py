"""What a checker found: per invariant how much was checked and what did not hold."""

from collections import Counter

import msgspec

EXAMPLES = 20
"""Violations of each invariant that are told in full; the rest are counted."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the checker takes for granted of the run. Times in microseconds."""

    exact_starts: bool = False
    """Every run that was charged has written its start. Real processes can die between the two; simulated
    ones cannot."""
    unseen_starts: int = 3
    """Without exact starts: jobs that may be charged for a crash before their first line."""
    redelivery: int = 120_000_000
    """The longest that a job may wait for its next run once its holder is known to be gone, besides the
    delay that crashes earn and the time in which the store was away."""
    unknown: int = 60_000_000
    """The longest that a living session may hold a lease that it does not know of: until the ask is repeated
    whose answer was lost, or the store is found to have forgotten something."""
    resume: int = 15_000_000
    """After healing with work at hand, the longest until something runs."""
    told: int = 3_000_000
    """The longest that a supervisor may keep the death of a child to itself."""
    clock_slack: int = 2_000
    """Rounding between the store's clock and the machine's."""
    beat: int = 5_000_000
    fairness_slack: int = 3
    """Claims that a lane may be behind its share, where a turn is one job."""


class Finding(msgspec.Struct):
    """One invariant."""

    holds_for: int = 0
    """How many cases were checked."""
    violated: int = 0
    examples: list[str] = []


class Verdict(msgspec.Struct, kw_only=True):
    """The result of a check."""

    findings: dict[str, Finding]
    events: int = 0
    jobs: int = 0
    runs: int = 0
    faults: dict[str, int] = {}
    duplicates: dict[str, int] = {}
    """Runs beyond the first of their job, by what explains them."""
    slowest_redelivery: int = 0
    """Microseconds from the known end of a holder to the next run of its job."""
    states: dict[str, int] = {}

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return not any(finding.violated for finding in self.findings.values())

    @property
    def violated(self) -> list[str]:
        """The names of what did not hold."""
        return [name for name, finding in self.findings.items() if finding.violated]

    def lines(self) -> list[str]:
        """For people."""
        found: list[str] = []
        for name, finding in self.findings.items():
            mark = f"VIOLATED {finding.violated} times" if finding.violated else "holds"
            found.append(f"{name.replace('_', ' ')}: {mark} ({finding.holds_for:,} checked)")
            found += [f"    {example}" for example in finding.examples]
        return found


class Check:
    """Collects what one invariant sees."""

    def __init__(self) -> None:
        self.finding = Finding(examples=[])
        self.duplicates: Counter[str] = Counter()
        self.slowest = 0

    def case(self, count: int = 1) -> None:
        """So many cases more were looked at."""
        self.finding.holds_for += count

    def broken(self, text: str) -> None:
        """One of them does not hold."""
        self.finding.violated += 1
        if len(self.finding.examples) < EXAMPLES:
            self.finding.examples.append(text)
