"""The report of a run: what was injected, how much ran, each invariant with its counts, and a verdict."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from windlass.verify.timeline import Timeline

EXAMPLES = 5
"""Violations of one invariant that are told in the text."""
CLEAN, VIOLATED, BROKEN = "clean", "violated", "could not run"
CODES = {CLEAN: 0, VIOLATED: 1, BROKEN: 2}


class Invariant(msgspec.Struct, kw_only=True):
    """One sentence that must hold."""

    name: str
    checked: int
    """How often it was looked at."""
    violations: int = 0
    examples: list[str] = []


class Report(msgspec.Struct, kw_only=True):
    """Everything that there is to say."""

    store: str
    durability: str
    own: bool
    seed: int
    date: str
    version: str
    settings: dict[str, str]
    seconds: float
    accepted: int
    runs: int
    injected: dict[str, int]
    missed: dict[str, int] = {}
    skipped: dict[str, str] = {}
    invariants: list[Invariant] = []
    duplicates: dict[str, int] = {}
    """Runs of a job beyond its first, by why there was another."""
    states: dict[str, int] = {}
    """Jobs by how they ended."""
    slowest_redelivery: float | None = None
    """Seconds from the end of a lease that was lost to the next start of its job."""
    figures: dict[str, float] = {}
    troubles: list[str] = []
    """What went wrong with the run itself."""
    complete: bool = True
    timeline: Timeline | None = None

    @property
    def verdict(self) -> str:
        """One of three."""
        if any(invariant.violations for invariant in self.invariants):
            return VIOLATED
        return CLEAN if self.complete and self.invariants else BROKEN

    @property
    def code(self) -> int:
        """The exit code."""
        return CODES[self.verdict]


def as_json(report: Report, *, with_timeline: bool = False) -> bytes:
    """One object, with its verdict."""
    document = msgspec.to_builtins(report)
    if not with_timeline:
        document.pop("timeline", None)
    return msgspec.json.encode({"verdict": report.verdict, **document})


def as_text(report: Report) -> str:
    """For a person."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    whose = "a store of the run's own" if report.own else "a scratch namespace"
    yield f"windlass verify {report.version}: {report.store} ({whose}), seed {report.seed}, {report.date}"
    yield f"  {report.durability}"
    yield f"  settings: {', '.join(f'{name} {value}' for name, value in report.settings.items())}"
    yield ""
    total = sum(report.injected.values())
    yield f"{report.accepted:,} jobs accepted, {report.runs:,} runs, in {report.seconds:,.0f} s"
    if report.states:
        yield f"  ended: {_listed(report.states)}"
    yield f"{total} faults of {len(report.injected)} kinds"
    yield from (f"  {count:>5}  {kind}" for kind, count in sorted(report.injected.items()))
    if report.missed:
        yield f"  found nothing to hurt: {_listed(report.missed)}"
    yield from (f"  not injected: {names}: {why}" for why, names in _grouped(report.skipped).items())
    yield ""
    yield "Invariants"
    for invariant in report.invariants:
        mark = "VIOLATED" if invariant.violations else "holds" if invariant.checked else "no case"
        count = (
            f"{invariant.violations:,} of {invariant.checked:,}"
            if invariant.violations
            else f"{invariant.checked:,}"
        )
        yield f"  {mark:<8}  {invariant.name} ({count})"
        yield from (f"            {example}" for example in invariant.examples[:EXAMPLES])
    yield ""
    yield (
        f"{sum(report.duplicates.values()):,} runs were repeated, each for a reason:"
        if report.duplicates
        else ("no run was repeated")
    )
    yield from (f"  {count:>7,}  {why}" for why, count in _by_count(report.duplicates))
    if report.slowest_redelivery is not None:
        yield f"slowest redelivery: {report.slowest_redelivery:.2f} s"
    yield from (f"{name}: {value:,.2f}" for name, value in report.figures.items())
    yield from (f"trouble: {trouble}" for trouble in report.troubles)
    yield ""
    yield f"Verdict: {report.verdict.upper()}"


def _by_count(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in _by_count(counts))


def _grouped(skipped: dict[str, str]) -> dict[str, str]:
    groups: dict[str, list[str]] = {}
    for name, why in skipped.items():
        groups.setdefault(why, []).append(name)
    return {why: ", ".join(names) for why, names in groups.items()}


def write(report: Report, folder: Path) -> None:
    """Put text, JSON and page into a folder."""
    from windlass.verify.page import page  # noqa: PLC0415 - for who wants one

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.txt").write_text(as_text(report))
    (folder / "report.json").write_bytes(as_json(report, with_timeline=True) + b"\n")
    (folder / "report.html").write_text(page(report))
