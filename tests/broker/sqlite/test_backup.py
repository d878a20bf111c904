"""The commands that docs/backup.md gives: a backup under load has all that was accepted before it began."""

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file
from tests.snippets import snippets

from windlass.broker.sqlite import SqliteBroker

PAGE = Path(__file__).parents[3] / "docs" / "backup.md"
COMMANDS = [
    line
    for found in snippets(PAGE)
    for line in found.text.splitlines()
    if line.startswith("python -m apsw windlass.db ")
]
LOAD = 200


def _run(command: str, source: Path, to: Path) -> None:
    """Run a command of the page, with these files instead of its own."""
    argument = command.removeprefix("python -m apsw windlass.db ").strip('"')
    subprocess.run(
        [sys.executable, "-m", "apsw", str(source), argument.replace("/backups/windlass.db", str(to))],
        check=True,
        capture_output=True,
        timeout=60,
    )


def test_the_page_has_two_commands() -> None:
    assert len(COMMANDS) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_a_backup_under_load_has_all_that_was_accepted_before_it(command: str, tmp_path: Path) -> None:
    path, copy = new_file(tmp_path), tmp_path / "copy.db"
    broker = SqliteBroker(path)
    run(broker).declare([QUEUE])
    accepted: list[str] = []
    loaded, enough = threading.Event(), threading.Event()

    def produce() -> None:
        writer = SqliteBroker(path)
        while not enough.is_set():
            accepted.append(writer.blocking.enqueue([[new_job()]])[0][0].job)
            if len(accepted) == LOAD:
                loaded.set()
        run(writer).close()

    producers = [threading.Thread(target=produce) for _ in range(2)]
    for producer in producers:
        producer.start()
    try:
        assert loaded.wait(60)
        before = list(accepted)
        _run(command, path, copy)
    finally:
        enough.set()
        for producer in producers:
            producer.join()
    assert len(accepted) > len(before), "others wrote meanwhile"
    run(broker).close()

    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(copy, path)
    restored = SqliteBroker(path)
    for at in range(0, len(before), 500):
        assert None not in run(restored).get(before[at : at + 500])
    restored.blocking.enqueue([[new_job()]])
    assert Path(f"{path}-wal").stat().st_size > 0, "it is in WAL mode, however the copy was made"
    run(restored).close()
