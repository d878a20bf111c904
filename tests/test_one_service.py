"""API and command line ask the one service, `windlass.admin`: no route and no command reaches a broker.

That they do not import one is a contract of import-linter. This test is about the other way: an object that
has a broker as an attribute, such as the app.
"""

import ast
from pathlib import Path

import pytest

import windlass

ROOMS = Path(windlass.__file__).parent
MODULES = sorted([*(ROOMS / "api").rglob("*.py"), *(ROOMS / "cli").rglob("*.py")])


def reached(source: str) -> list[str]:
    """The places of a module where it takes a broker from an object, or calls something a broker."""
    names = ((node, getattr(node, "attr", getattr(node, "id", ""))) for node in ast.walk(ast.parse(source)))
    return [f"line {node.lineno}: {name}" for node, name in names if name in ("broker", "_broker")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOMS)))
def test_no_route_and_no_command_reaches_a_broker(module: Path) -> None:
    assert reached(module.read_text()) == []


@pytest.mark.parametrize(
    "line", ["await app.broker()", "app.connection.broker", "broker.get(ids)", "s._broker"]
)
def test_a_broker_would_be_noticed(line: str) -> None:
    assert reached(f"async def route(app, broker, s, ids):\n    {line}") != []
