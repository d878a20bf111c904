"""The HTTP API: for producers, operators, and workers in any language. `windlass.api.server` builds it.

Inside of another application: `Mounted`.
"""

from windlass.api.access import Visitor
from windlass.api.mounting import Mounted

__all__ = ["Mounted", "Visitor"]
