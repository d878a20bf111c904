"""What came of simulated seeds, in words and as JSON."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from windlass.verify.simulator import Judged, Simulated, live, simulate

SHOWN = 20
"""Failed seeds that are told with what did not hold."""


def run_seeds(first: int, count: int, told: Callable[[int], object]) -> Simulated:
    """Run so many seeds; `told` hears of each."""

    def one_more(_judged: Judged) -> None:
        told(1)

    return simulate(range(first, first + count), told=one_more)


def keep_histories(found: Simulated, seeds: range, folder: Path) -> list[Path]:
    """Leave the histories of failed seeds in a folder each, or that of the only one; returns the folders."""
    wanted = list(seeds) if len(seeds) == 1 else [judged.seed for judged in found.failed[:SHOWN]]
    folders = [folder / f"seed-{seed}" for seed in wanted]
    for seed, place in zip(wanted, folders, strict=True):
        live(seed).write(place)
    return folders


def as_json(found: Simulated) -> bytes:
    """One object."""
    return msgspec.json.encode({"verdict": "clean" if found.ok else "violated", **msgspec.to_builtins(found)})


def as_text(found: Simulated) -> str:
    """For a person."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Simulated) -> Iterator[str]:
    yield (
        f"{found.seeds:,} seeds in {found.seconds:,.0f} s: {found.jobs:,} jobs, {found.runs:,} runs, "
        f"{found.events:,} events, {sum(found.faults.values()):,} faults of {len(found.faults)} kinds"
    )
    yield from (f"  {count:>9,}  {kind}" for kind, count in sorted(found.faults.items()))
    yield "Invariants, and how often each was checked"
    yield from (f"  {count:>9,}  {name.replace('_', ' ')}" for name, count in found.checked.items())
    yield f"{sum(found.duplicates.values()):,} runs were repeated, each for a reason:"
    yield from (f"  {count:>9,}  {why}" for why, count in sorted(found.duplicates.items()))
    for judged in found.failed[:SHOWN]:
        yield f"seed {judged.seed} is VIOLATED: {', '.join(judged.verdict.violated)}"
        yield from (f"    {line}" for line in judged.verdict.lines() if line.startswith("    "))
    if found.failed:
        first = found.failed[0].seed
        yield f"to have its history: windlass verify --simulate 1 --seed {first} --report FOLDER"
    yield f"Verdict: {'CLEAN' if found.ok else f'VIOLATED in {len(found.failed):,} seeds'}"
