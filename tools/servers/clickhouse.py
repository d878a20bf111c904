"""Fetches ClickHouse's engine: a wheel of 180 MB, by its hash. It is in no requirements file, since it is
larger than all that is there.
"""

import sys
import tempfile
from pathlib import Path

from tools.servers.fetching import run

from windlass.verify.brokers.clickhouse import VERSION, engine_in

PINS = Path(__file__).with_name("clickhouse.txt")


def fetch(folder: Path) -> None:
    """Put the engine into the folder, unless it is there."""
    place = engine_in(folder)
    if (place / "chdb").is_dir():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
        # Without what it imports for data frames alone: pandas and pyarrow.
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        pins = ["--require-hashes", "--requirement", str(PINS)]
        target = Path(unfinished, "site")
        run(
            [sys.executable, "-m", "pip", "install", *options, "--target", str(target), *pins],
            why=f"ClickHouse's engine (chdb-core {VERSION})",
        )
        target.rename(place)
