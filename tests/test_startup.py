"""What starts does not import what it does not need. No clock: the modules that were imported are counted."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import windlass
from windlass.cli.program import build
from windlass.cli.summaries import SUMMARIES

STORES = {"apsw", "psycopg", "redis"}
HEAVY = {
    *STORES,
    "asyncio",
    "cyclopts",
    "litestar",
    "msgspec",
    "opentelemetry",
    "prometheus_client",
    "rich",
    "ssl",
}


def imported(program: str) -> set[str]:
    """The modules that are imported at the end of a program, in an interpreter of its own."""
    told = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport json, sys\nprint('\\n' + json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(told.stdout.splitlines()[-1]))


def test_importing_the_package_imports_nothing_heavy() -> None:
    modules = imported("import windlass")
    assert modules & HEAVY == set()
    assert {name for name in modules if name.startswith("windlass.")} == {"windlass.version"}


def test_a_producer_imports_neither_stores_nor_the_command_line() -> None:
    modules = imported("from windlass import Windlass")
    assert modules & (HEAVY - {"asyncio", "msgspec", "ssl"}) == set()
    assert [
        name for name in modules if name.startswith(("windlass.cli.", "windlass.api.", "windlass.admin."))
    ] == []


@pytest.mark.parametrize("typed", [["--help"], ["--version"], []])
def test_help_imports_no_command(typed: list[str]) -> None:
    modules = imported(f"from windlass.cli import main; main({typed})")
    assert "cyclopts" in modules
    assert modules & (HEAVY - {"cyclopts", "rich", "asyncio", "ssl"}) == set()
    assert [name for name in modules if name.startswith(("windlass.admin", "windlass.client"))] == []


def test_the_help_of_a_command_imports_that_command_alone() -> None:
    modules = imported("from windlass.cli import main; main(['worker', '--help'])")
    assert "windlass.cli.work" in modules
    assert modules & {*STORES, "litestar", "windlass.cli.dead", "windlass.cli.serve"} == set()


def test_every_public_name_is_found_and_visible_to_type_checkers() -> None:
    tree = ast.parse(Path(inspect.getfile(windlass)).read_text())
    seen = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == windlass._MODULES
    assert {*seen, "__version__"} == set(windlass.__all__)
    assert {*windlass.__all__} <= {*dir(windlass)}
    assert all(getattr(windlass, name) is not None for name in windlass.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Windless'"):
        windlass.Windless  # noqa: B018


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    whole, short = build().resolved_commands(), build("").resolved_commands()
    assert list(whole) == list(short)
    for name, command in whole.items():
        if not name.startswith("-"):
            first = inspect.cleandoc(command.help or "").partition("\n\n")[0]
            assert short[name].help == " ".join(first.split()), name
    assert set(SUMMARIES) < set(whole)
