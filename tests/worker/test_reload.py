"""A change of the sources is noticed, whatever it is; what nobody edits is not looked at."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.worker.simulated import ManualPace

from windlass.worker import reload
from windlass.worker.reload import changed, difference, sources, start_anew


def test_only_sources_are_looked_at(tmp_path: Path) -> None:
    for name in ("a.py", "package/b.py", ".venv/c.py", "package/__pycache__/d.py", ".e.py", "f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    found = {str(Path(path).relative_to(tmp_path)) for path in sources(tmp_path)}
    assert found == {"a.py", "package/b.py"}


def test_added_removed_and_changed_files_are_changes() -> None:
    assert difference({"a": 1}, {"a": 1}) is None
    assert difference({"a": 1}, {"a": 2}) == "a"
    assert difference({"a": 1}, {"a": 1, "b": 1}) == "b"
    assert difference({"a": 1, "b": 1}, {"b": 1}) == "a"


def test_a_change_is_noticed_within_a_second(tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "tasks.py"
        file.write_text("one = 1")
        pace = ManualPace()
        waiting = asyncio.create_task(changed(pace, tmp_path))
        await pace.advance(10)
        assert not waiting.done()
        os.utime(file, ns=(1, 1))
        await pace.advance(1)
        assert await waiting == str(file)

    asyncio.run(main())


def test_the_same_command_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(reload.os, "execv", lambda path, arguments: begun.append((path, arguments)))
    monkeypatch.setattr(reload.sys, "orig_argv", ["python", "-m", "windlass", "worker", "tasks:app"])
    monkeypatch.setattr(reload.sys, "executable", "/somewhere/python")
    start_anew()
    arguments = ["/somewhere/python", "-m", "windlass", "worker", "tasks:app"]
    assert begun == [("/somewhere/python", arguments)]
