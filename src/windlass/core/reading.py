"""How far a reader of the event log has read, and whose turn it is to read: a document of kind `reader`."""

import msgspec

from windlass.core.units import Micros


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How far the log of events was read, and who reads it."""

    cursor: str
    holder: str = ""
    until: Micros = 0
    """Others leave it alone until then."""
