"""The HTTP API: for producers, operators, and workers in any language. `windlass.api.server` builds it.

Inside of another application: `Mounted`.
"""

from windlass.extras import lacking

try:
    from windlass.api.access import Visitor
    from windlass.api.mounting import Mounted
except ModuleNotFoundError as missing:
    raise lacking("windlass.api", missing, "windlass-queue[serve]") from missing

__all__ = ["Mounted", "Visitor"]
