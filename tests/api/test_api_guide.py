"""docs/http.md is followed to the letter: each command is typed, and what comes has what the page shows."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.api.served import TOKEN, Served
from tests.snippets import snippets

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
JOB = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b")
LEASE = re.compile(r"(?<=/v1/leases/)[\w-]{40,}")
PORT = "localhost:8700"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: apt-get install curl")
def test_every_request_of_the_page_is_answered_as_it_says(tmp_path: Path) -> None:
    served = Served(tmp_path)
    found = snippets(PAGE)
    (tmp_path / "tasks.py").write_text(next(each.text for each in found if each.file == "tasks.py"))
    served.start()
    known: dict[str, str] = {}
    try:
        asked = 0
        for snippet in found:
            if snippet.language != "console":
                continue
            lines = snippet.text.splitlines()
            for command, shown in zip(lines[::2], lines[1::2], strict=True):
                if "WINDLASS_KEY" in command:
                    words = ["--scope", "enqueue", "--scope", "read", "--label", "shop"]
                    known["key"] = served.command("keys", "tasks:app", "create", *words).strip()
                answer = _typed(command.removeprefix("$ "), served, known)
                wanted = json.loads(shown)
                assert _has(answer, wanted), (snippet.place, command, answer)
                _remember(answer, known)
                asked += 1
        assert asked >= 10
    finally:
        served.stop()


def _typed(command: str, served: Served, known: dict[str, str]) -> Any:
    command = command.replace(PORT, f"127.0.0.1:{served.port}")
    command = JOB.sub(lambda found: known.get("job", found[0]), command)
    command = LEASE.sub(lambda found: known.get("lease", found[0]), command)
    done = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": "/usr/bin:/bin", "WINDLASS_KEY": known.get("key", ""), "WINDLASS_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def _remember(answer: Any, known: dict[str, str]) -> None:
    if not isinstance(answer, dict):
        return
    for name in ("id", "task_id"):
        if name in answer:
            known["job"] = answer[name]
    for lease in answer.get("leases", ()):
        known["lease"] = lease["lease"]


def _has(answer: Any, shown: Any) -> bool:
    """Whether an answer has what the page shows; ids, tokens and times differ."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(
            name in answer and _has(answer[name], value) for name, value in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(answer, list) and (not shown or all(_has(answer[0], each) for each in shown[:1]))
    if isinstance(shown, str):
        return isinstance(answer, str) and (answer == shown or len(answer) == len(shown) > 10)
    if isinstance(shown, float):
        return isinstance(answer, float) and abs(answer - shown) < 1
    return bool(answer == shown) or shown is None
