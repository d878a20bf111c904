"""Run the tests; what failed beside all the others is tried once more, alone.

Hundreds of tests run real workers, servers and signals, two at a time, beside whatever the machine does. One
that fails there and passes alone is printed and does not fail the run; one that fails alone does, and so does
a run with more than a few failures. With arguments there is no second try: whoever narrows is looking for it.
docs/decisions/0017-second-try.md
"""

import json
import subprocess
import sys
from pathlib import Path

MOST_TRIED_AGAIN = 5
SOME_FAILED = 1  # pytest's exit code; others mean that not everything ran
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: list[str]) -> int:
    """Run them; return the exit code."""
    if not arguments:
        _FAILED.unlink(missing_ok=True)  # of an earlier run
    code = _pytest(*arguments)
    if code != SOME_FAILED or arguments:
        return code
    failed = list(json.loads(_FAILED.read_text()))
    if not 0 < len(failed) <= MOST_TRIED_AGAIN:
        return code
    print("\nonce more, alone:", *failed, sep="\n  ", flush=True)
    code = _pytest("-n", "0", *failed)
    if code == 0:
        print("\nFAILED BESIDE OTHERS, PASSED ALONE (to be looked into):", *failed, sep="\n  ")
    return code


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
