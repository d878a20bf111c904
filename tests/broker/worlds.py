"""Worlds for walks of the state machine that are led by hand."""

from windlass.conformance.machine.draws import World
from windlass.core.units import HOUR, SECOND

SMALL_WORLD = World(
    session_ttl=30 * SECOND,
    resend_window=HOUR,
    retention=HOUR,
    events_kept=100,
    max_size=None,
    plain={},
    laned={},
    ordered={"sequence": True},
    lanes={},
)
