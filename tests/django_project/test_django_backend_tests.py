"""The tool that runs the tests of Django's own backends puts Windlass into them, and tells what fails."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "django_backend_tests.py"
URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [
    path("admin/", admin.site.urls),
]
"""
TASKS = """
from django_tasks import task


@task()
def meaning() -> int:
    return 42
"""
TESTS = """
from django.test import SimpleTestCase, override_settings
from django_tasks import task_backends
from django_tasks.backends.{module} import {name}
from tests import tasks


@override_settings(TASKS={{"default": {{"BACKEND": "django_tasks.backends.{module}.{name}"}}}})
class {name}TestCase(SimpleTestCase):
    def test_it(self) -> None:
        self.assertIsInstance(task_backends["default"], {name})
        self.assertIn("windlass", str({name}.__mro__))
        self.assertEqual(str(tasks.meaning.enqueue().status), {status!r})

    def test_clear(self) -> None:
        self.assertEqual({name}TestCase.__name__, "ImmediateBackendTestCase")
"""


def _run(folder: Path, *, waiting: str = "READY", at_once: str = "SUCCESSFUL") -> tuple[int, str]:
    files = {
        "__init__.py": "",
        "tasks.py": TASKS,
        "views.py": "",
        "urls.py": URLS,
        "tests/__init__.py": "",
        "tests/test_dummy_backend.py": TESTS.format(module="dummy", name="DummyBackend", status=waiting),
        "tests/test_immediate_backend.py": TESTS.format(
            module="immediate", name="ImmediateBackend", status=at_once
        ),
    }
    for name, text in files.items():
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, TOOL, folder], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stderr


def test_their_tests_run_on_windlass(tmp_path: Path) -> None:
    code, said = _run(tmp_path)
    assert code == 0, said
    assert "Ran 4 tests" in said
    assert "skipped=1" in said
    assert "it reaches into the list that Django's DummyBackend keeps" in said


@pytest.mark.parametrize("wrong", [{"waiting": "SUCCESSFUL"}, {"at_once": "READY"}])
def test_a_test_that_fails_is_told(tmp_path: Path, wrong: dict[str, str]) -> None:
    code, said = _run(tmp_path, **wrong)
    assert code != 0
    assert "FAILED (failures=1, skipped=1)" in said
