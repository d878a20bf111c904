"""Leases for tests that need one and do not mind which."""

from typing import Any

from windlass.core.lease import Lease


def a_lease(**more: Any) -> Lease:
    """A lease; `more` says what matters."""
    said: dict[str, Any] = {"job": "j", "fence": 1, "task": "t", "queue": "q", "lane": "", "priority": 0}
    said |= {"attempt": 1, "max_attempts": 5, "crashes": 0, "revision": 0, "payload": b""}
    return Lease(**said | more)
