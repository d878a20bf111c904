"""Hold `windlass.django.backend` to the tests that Django has for its own backends of tasks.

    python tools/django_backend_tests.py FOLDER

FOLDER is a checkout of Django (6 or later) or of `django-tasks`, at the tag of the version that is installed
beside this Python. Its tests are copied into a temporary folder, with the backends of
`django_backends_of_tests.py` in place of Django's two, and run there. What does not apply to Windlass is
skipped, and each skip says why.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = """
SECRET_KEY = "only for these tests"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}
INSTALLED_APPS = ["windlass.django", *{apps}]
ROOT_URLCONF = {urls!r}
WINDLASS = {{"url": "memory://"}}
# Their tasks are registered with this backend. Django's own two run a task once.
ONCE = {{"retry": {{"max_attempts": 1}}}}
TASKS = {{"default": {{"BACKEND": "{stand_ins}.DummyBackend", "OPTIONS": ONCE}}}}
"""
MODULES = ("test_tasks.py", "test_immediate_backend.py", "test_dummy_backend.py", "test_custom_backend.py")
STAND_INS = Path(__file__).with_name("django_backends_of_tests.py")


def main(arguments: list[str]) -> int:
    """Copy, adapt and run; the exit code is that of the tests."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    source = Path(arguments[0])
    with tempfile.TemporaryDirectory(prefix="wl-") as folder:
        place = Path(folder)
        if (source / "tests" / "tasks").is_dir():
            package = _copy_of_django(source / "tests" / "tasks", place)
            apps, urls = [package], ""
        else:
            package = _copy_of_django_tasks(source / "tests", place)
            apps, urls = ["django_tasks", package], "tests.urls"
        settings = SETTINGS.format(apps=apps, urls=urls, stand_ins=STAND_INS.stem)
        (place / "settings_of_tests.py").write_text(settings)
        shutil.copy(STAND_INS, place)
        return subprocess.run(
            [sys.executable, "-m", "django", "test", package, "-v2"],
            cwd=place,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "settings_of_tests", "PYTHONPATH": folder},
            check=False,
        ).returncode


def _copy_of_django(source: Path, place: Path) -> str:
    for file in (source / "__init__.py", source / "tasks.py", *_present(source)):
        _copy(file, place / "tasks" / file.name)
    return "tasks"


def _copy_of_django_tasks(source: Path, place: Path) -> str:
    for name in ("__init__.py", "tasks.py", "views.py", "tests/__init__.py"):
        _copy(source / name, place / "tests" / name)
    for file in _present(source / "tests"):
        _copy(file, place / "tests" / "tests" / file.name)
    urls = (source / "urls.py").read_text()
    (place / "tests" / "urls.py").write_text(re.sub(r"^.*\badmin\b.*\n", "", urls, flags=re.MULTILINE))
    return "tests"


def _present(folder: Path) -> list[Path]:
    return [folder / name for name in MODULES if (folder / name).is_file()]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(adapted(source.read_text()))


def adapted(text: str) -> str:
    """A module of theirs, with Windlass in it."""
    for kind in ("dummy", "immediate"):
        text = re.sub(rf"django[._]tasks\.backends\.{kind}\b", STAND_INS.stem, text)
    text = re.sub(r"\((SimpleTestCase|TransactionTestCase)\):", rf"({STAND_INS.stem}.WithJobs, \1):", text)
    text = text.replace(
        "class CustomTaskBackend(BaseTaskBackend)", f"class CustomTaskBackend({STAND_INS.stem}.TasksBackend)"
    )
    return f"import {STAND_INS.stem}\n{text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
