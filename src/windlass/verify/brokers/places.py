"""Where the servers are that `make servers` has fetched."""

import os
from pathlib import Path


class Missing(Exception):
    """A server is not on this machine; the text says how to get it."""


def servers_folder() -> Path:
    """`$WINDLASS_SERVERS`, else `.servers` in the working directory."""
    return Path(os.environ.get("WINDLASS_SERVERS") or ".servers").absolute()
