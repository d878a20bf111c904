"""Fail when too few branches of a package were taken: check_branch_coverage.py PERCENT PACKAGE...

Coverage's own `fail_under` counts lines and branches together, and lines hide untaken branches. Reads the
report that `coverage json` wrote; a PACKAGE is a folder below src, such as `windlass/core`.
"""

import json
import sys
from pathlib import Path, PurePosixPath

REPORT = Path(__file__).resolve().parent.parent / ".coverage.json"


def branches(files: dict[str, dict], package: str) -> tuple[int, int]:
    """Return how many branches of a package were taken, and how many it has."""
    folder = PurePosixPath("src", package)
    summaries = [
        report["summary"]
        for name, report in files.items()
        if PurePosixPath(name.replace("\\", "/")).is_relative_to(folder)
    ]
    if not summaries:
        sys.exit(f"no coverage of src/{package} was measured; is it spelled right?")
    return sum(s["covered_branches"] for s in summaries), sum(s["num_branches"] for s in summaries)


def main(least: float, packages: list[str]) -> int:
    """Print the branch coverage of each package; return the exit code."""
    files = json.loads(REPORT.read_text())["files"]
    enough = True
    for package in packages:
        taken, total = branches(files, package)
        percent = 100 * taken / total if total else 100.0
        enough = enough and percent >= least
        print(f"{package}: {taken} of {total} branches, {percent:.1f} % (at least {least:g} %)")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
