"""New files for tests of the SQLite broker: copies of an empty one, since making a layout takes long."""

import atexit
import functools
import itertools
import shutil
import tempfile
from pathlib import Path

from windlass.broker.contract import Options
from windlass.broker.sqlite import SqliteBroker

_numbers = itertools.count(1)


@functools.cache
def folder() -> Path:
    """A folder of this process, removed at its end."""
    made = Path(tempfile.mkdtemp(prefix="windlass-sqlite-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@functools.cache
def _empty(namespace: str) -> Path:
    path = folder() / f"{namespace}.db"
    SqliteBroker(path, options=Options(namespace=namespace)).store.close()
    return path


def new_file(where: Path | None = None, namespace: str = "windlass") -> Path:
    """A file with the newest layout and nothing in it."""
    path = (where or folder()) / f"{next(_numbers)}.db"
    shutil.copyfile(_empty(namespace), path)
    return path


def remove_file(path: Path) -> None:
    """Remove a file and all that lies beside it."""
    for beside in path.parent.glob(f"{path.name}*"):
        if beside.is_dir():
            shutil.rmtree(beside, ignore_errors=True)
        else:
            beside.unlink(missing_ok=True)
