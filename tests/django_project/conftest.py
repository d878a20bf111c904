"""The example site, in a folder of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "examples" / "django_site"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of every process of the site."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("WINDLASS")},
        "SHOP_DATA": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "PYTHONPATH": str(SITE),
        "PYTHONWARNINGS": "error::ResourceWarning",
    }


@pytest.fixture
def manage(environment: dict[str, str]) -> Callable[..., str]:
    """Run `manage.py` and return what it prints."""

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=SITE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def site(manage: Callable[..., str]) -> Callable[[str], str]:
    """The site with its tables; runs Python inside of it and returns what that prints."""
    manage("migrate", "-v0")
    return lambda code: manage("shell", "-v0", "-c", code).strip()


@pytest.fixture
def worker(site: Callable[[str], str], environment: dict[str, str]) -> Iterator[None]:
    """A worker of the site."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "windlass", "worker", "--processes", "1"], cwd=SITE, env=environment
    )
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0
