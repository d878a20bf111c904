"""What every process of a run must know: where histories go, which store, and the shortened times."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from windlass.errors import InvalidOption

FOLDER: Final = "WINDLASS_VERIFY_FOLDER"
"""The variable that names the folder of the histories to the processes of a run."""
HOST: Final = "WINDLASS_VERIFY_HOST"
"""The variable that names the host of workers that a process plays a part of."""
HTTP: Final = "WINDLASS_VERIFY_HTTP"
"""The variable that tells producers of workers who speak HTTP: without them nobody would run their jobs."""
FRONT: Final = "WINDLASS_FRONT"
"""The variable that names the front door, where a run has one."""
TOKEN: Final = "WINDLASS_TOKEN"
"""The variable that tells the HTTP server and its workers the server's token."""
FOREIGN: Final = "foreign"
"""The queue of those workers, and the task that they run."""
APP: Final = "windlass.verify.tasks:app"

TIMES: Final[Mapping[str, str]] = {
    "session_ttl": "3s",
    "beat": "500ms",
    "grace": "2s",
    "resend_window": "60s",
    "retention": "7d",
    "result_ttl": "7d",
}
"""Settings of a run that differ from the defaults: shorter, so that a short run meets what takes longer
elsewhere; and finished jobs are kept, to be read in the end."""
SESSION_TTL: Final = 3.0
"""Seconds; the same as in `TIMES`."""


def environment(url: str, namespace: str, folder: Path, **more: str) -> dict[str, str]:
    """For a process of the run: no setting of the user's but the store."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    times = {f"WINDLASS_{name.upper()}": value for name, value in TIMES.items()}
    return {
        **clean,
        **times,
        "WINDLASS_URL": url,
        "WINDLASS_NAMESPACE": namespace,
        "WINDLASS_LOG_LEVEL": "INFO",
        "PYTHONDONTWRITEBYTECODE": "1",
        FOLDER: str(folder),
        **more,
    }


def sign(folder: Path) -> Path:
    """A file in the folder of a run: while it is there, no process of the run opens the store."""
    return folder / "closed"


def history_folder() -> Path:
    """Where this process writes its history."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        raise InvalidOption(f"{APP} runs only within `windlass verify`, which sets {FOLDER}")
    return Path(folder)
