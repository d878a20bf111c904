"""The counts of several processes that answer on one port, such as those of `windlass serve --workers 4`.

Each keeps what it has counted in a file of its own, in a folder that they share: once a second, and whenever
it is asked for metrics. The process that is asked shows its own and what the files of the others say. A
file outlives its process, and is brought up to date before its process shows what is in it, so nobody is
shown a counter that goes back.
"""

import os
from pathlib import Path
from uuid import uuid4

import msgspec

from windlass.observe.exposition import Registry, Taken

FOLDER_VARIABLE = "WINDLASS_METRICS_FOLDER"
"""Tells the processes of a server where; set by the one that starts them."""
EVERY = 1.0
"""Seconds."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder[Taken](Taken).decode


class Together:
    """One process among several."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self._registry = registry
        self._folder = folder
        # A pid may come again, and with it a count from nothing.
        self._name = f"{os.getpid()}-{uuid4().hex}"

    def tell(self) -> None:
        """Let the others know."""
        new = self._folder / f".{self._name}"
        new.write_bytes(_encode(self._registry.copied()))
        new.replace(self._folder / self._name)

    def whole(self) -> Registry:
        """What all of them have counted."""
        self.tell()
        whole = self._registry.twin()
        for path in self._folder.iterdir():
            if path.name != self._name and not path.name.startswith("."):
                whole.add(_decode(path.read_bytes()))
        return whole


def folder_from_environment() -> Path | None:
    """Where the processes of this server meet; None: it is the only one."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) if folder else None
