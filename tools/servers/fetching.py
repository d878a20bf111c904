"""What the modules of this folder share."""

import subprocess
from collections.abc import Sequence


class CannotFetch(Exception):
    """A server cannot be had on this machine; the text says why."""


def run(command: Sequence[str], *, why: str) -> None:
    """Run a command that fetches something; `why` says what it is for, in case that it fails."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        raise CannotFetch(f"{why} needs the command {command[0]}, which is not installed") from None
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise CannotFetch("\n  ".join([f"{why}: {' '.join(command)} failed:", *last]))
