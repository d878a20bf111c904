"""What the modules of this folder share."""

import subprocess
import time
from collections.abc import Sequence

_PAUSE = 5.0
"""Seconds between two tries of a fetch over the network; each time twice as long."""


class CannotFetch(Exception):
    """A server cannot be had on this machine; the text says why."""


def run(command: Sequence[str], *, why: str, tries: int = 1) -> None:
    """Run a command that fetches something; `why` says what it is for, in case that it fails."""
    for tried in range(tries):
        if tried:
            time.sleep(_PAUSE * 2 ** (tried - 1))
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True)
        except FileNotFoundError:
            raise CannotFetch(f"{why} needs the command {command[0]}, which is not installed") from None
        if done.returncode == 0:
            return
    last = (done.stdout + done.stderr).strip().splitlines()[-5:]
    raise CannotFetch("\n  ".join([f"{why}: {' '.join(command)} failed:", *last]))
