"""The plugin, in a pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

TASKS = """
from windlass import Windlass
app = Windlass("sqlite:///never.db")

@app.task
def send(to: str) -> str:
    if not to:
        raise LookupError("nobody")
    return to
"""

TESTS = """
import asyncio
import pytest
from shop import app, send
from windlass.testing import testing  # is no test itself

def test_testing(windlass_testing):
    send.enqueue("ada")
    windlass_testing.drain()
    windlass_testing.assert_enqueued(send, "ada")

def test_async(windlass_async_testing):
    async def scenario():
        await send.aenqueue("ada")
        assert [run.result for run in await windlass_async_testing.drain()] == ["ada"]
    asyncio.run(scenario())

def test_inline(windlass_inline):
    assert send.enqueue("ada").result() == "ada"

def test_that_fails(windlass_testing):
    send.enqueue("")
    windlass_testing.drain(raises=False)
    assert windlass_testing.enqueued()[0].state == "done"
"""


def run_pytest(folder: Path, *options: str) -> str:
    # Without the plugins of other packages, which take a second to load.
    command = [sys.executable, "-m", "pytest", "-p", "pytest_windlass", "-p", "no:cacheprovider"]
    answer = subprocess.run(
        [*command, "--rootdir", ".", "-c", "pytest.ini", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    return answer.stdout + answer.stderr


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(TASKS)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nwindlass_app = shop:app\npythonpath = .\n")
    output = run_pytest(tmp_path)
    assert "1 failed, 3 passed" in output
    assert "- windlass -" in output
    assert "attempt 1 of 5  send  retry in 30 s  LookupError: nobody" in output
    assert not (tmp_path / "never.db").exists()


def test_an_override_lasts_for_a_test(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from windlass import Depends, Windlass\n"
        "app = Windlass('memory://')\n"
        "def get_db(): return 'real'\n"
        "@app.task\n"
        "def ask(db: str = Depends(get_db)) -> str: return db\n"
    )
    (tmp_path / "test_shop.py").write_text(
        "from shop import ask, get_db\n"
        "def test_fake(windlass_testing, windlass_override):\n"
        "    windlass_override(get_db, lambda: 'fake')\n"
        "    assert windlass_testing.run(ask) == 'fake'\n"
        "def test_real(windlass_testing):\n"
        "    assert windlass_testing.run(ask) == 'real'\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nwindlass_app = shop:app\npythonpath = .\n")
    assert "2 passed" in run_pytest(tmp_path)


def test_an_app_that_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text("def test_it(windlass_testing): ...\n")
    assert 'which app? Set windlass_app = "package.module:app"' in run_pytest(tmp_path)


def test_it_imports_nothing_until_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n"
        "    assert 'pytest_windlass' in sys.modules\n    assert 'windlass' not in sys.modules\n"
    )
    assert "1 passed" in run_pytest(tmp_path)
