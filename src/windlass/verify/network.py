"""The run's hand on the proxy: doors by name, and the weather at each."""

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.errors import StoreError
from windlass.verify.proxy import Weather


class Network:
    """A proxy process. Doors: "a", "b", ... of the hosts of workers, and "producers"."""

    def __init__(self, store: tuple[str, int], doors: Sequence[str]) -> None:
        self.store = store
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter and this package
            [sys.executable, "-m", "windlass.verify.proxy", store[0], str(store[1]), *doors],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.doors: dict[str, int] = msgspec.json.decode(self._answer(), type=dict[str, int])

    def weather(self, doors: Sequence[str], **how: Any) -> None:
        """Set the weather at doors; it counts when this returns."""
        assert self._process.stdin is not None
        for door in doors:
            self._process.stdin.write(msgspec.json.encode(Weather(door=door, **how)) + b"\n")
            self._process.stdin.flush()
            self._answer()

    def clear(self) -> None:
        """Fine weather everywhere."""
        self.weather(list(self.doors))

    def close(self) -> None:
        """End the proxy."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise StoreError("the proxy of the run has ended; start the run again")
        return line
