"""The guides are followed to the letter: each command is typed, and what the page shows is what comes.

Ids, pids and times differ from one run to the next, so they are replaced: in commands by those of this run,
in what is compared by a mark. A page may leave lines out.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.snippets import Snippet, snippets

from windlass.config import PREFIX

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "README.md", ROOT / "docs" / "five-minutes.md"]
SECOND = "time.sleep(0.1)"
"""What the guide's task does for a second of a reader's time."""

_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_VARYING = re.compile(
    r"\b[0-9a-f]{32}\b"  # a session
    r"|\b\d{4}-\d\d-\d\d[ T][\d:]+(?:\.\d+[+-]\d\d:\d\d|Z)"  # a time
    r"|\b\d+(?:\.\d+)? ?(?:ms|s|min|h)\b"  # a duration
    r"|(?<=process )\d+|(?<=child )\d+|(?<= INFO )\d+|(?<= ERROR )\d+"  # a pid
)


def marked(line: str) -> str:
    """A line without what differs from run to run."""
    return " ".join(_VARYING.sub("~", _ID.sub("ID", line)).split())


def eventually(what: str, found: Callable[[], bool], *, hint: Callable[[], str], within: float = 60) -> None:
    """Wait for what another process brings about."""
    end = time.monotonic() + within
    while not found():
        assert time.monotonic() < end, f"not within {within:g} s: {what}\n{hint()}"
        time.sleep(0.02)


class Reader:
    """Somebody who follows a page: a folder, a first terminal, and a second one with a worker in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder.parent / "bin"
        programs.mkdir()
        program = programs / "windlass"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m windlass "$@"\n')
        program.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._environment = {**kept, "PATH": f"{programs}:{kept['PATH']}", "COLUMNS": "200"}
        self._log = folder.parent / "second-terminal"
        self._worker: subprocess.Popen[bytes] | None = None
        self._ids: dict[str, str] = {}

    def does(self, block: Snippet) -> None:
        """Act on one block of the page."""
        if block.file == "tasks.py":
            (self.folder / "tasks.py").write_text(block.text.replace("time.sleep(1)", SECOND))
        elif block.language == "text":
            self._sees_in_second_terminal(block.text.splitlines(), block.place)
        elif block.language == "console":
            for typed in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, *expected = typed.splitlines()
                self._types(command, expected, block.place)

    def _types(self, command: str, expected: list[str], place: str) -> None:
        if command.startswith("windlass worker"):
            with self._log.open("wb") as log:
                self._worker = subprocess.Popen(
                    command.split(), cwd=self.folder, env=self._environment, stdout=log, stderr=log
                )
            self._sees_in_second_terminal(expected, place)
        elif command.startswith("kill "):
            os.kill(int(re.findall(r"process (\d+)", self._log.read_text())[-1]), signal.SIGKILL)
        else:
            self._types_and_reads(command, expected, place)

    def _types_and_reads(self, command: str, expected: list[str], place: str) -> None:
        """What is shown may take a moment to become true, so a question is asked again."""
        ours = _ID.sub(lambda found: self._ids.get(found[0], found[0]), command)
        said = ""

        def as_shown() -> bool:
            nonlocal said
            done = subprocess.run(
                ["bash", "-c", ours],
                cwd=self.folder,
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            said = done.stdout + done.stderr
            lines = {marked(line) for line in said.splitlines()}
            return all(marked(line) in lines for line in expected)

        acts = re.match(r"windlass (enqueue|dead \S+ (replay|discard))", command) is not None
        eventually(f"{place}: {command}", as_shown, hint=lambda: said, within=0 if acts else 60)
        if acts and len(expected) == 1 and _ID.fullmatch(expected[0]):
            self._ids[expected[0]] = said.strip()

    def _sees_in_second_terminal(self, expected: list[str], place: str) -> None:
        def seen() -> bool:
            lines = {marked(line) for line in self._log.read_text().splitlines()}
            return all(marked(line) in lines for line in expected)

        eventually(f"{place}: {expected}", seen, hint=self._log.read_text)

    def leaves(self) -> None:
        """Stop the worker, which ends as told."""
        if self._worker is not None:
            self._worker.terminate()
            assert self._worker.wait(30) == 0

    def is_gone(self) -> None:
        """Whatever happened, nothing is left running."""
        if self._worker is not None and self._worker.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._worker.kill()
            self._worker.wait(30)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "first"
    folder.mkdir()
    made = Reader(folder)
    yield made
    made.is_gone()


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_guide_can_be_followed(guide: Path, reader: Reader) -> None:
    blocks = snippets(guide)
    start = next(number for number, block in enumerate(blocks) if block.file == "tasks.py")
    commands = "".join(block.text for block in blocks[start:] if block.language == "console")
    assert "kill -9" in commands
    for block in blocks[start:]:
        reader.does(block)
    reader.leaves()
