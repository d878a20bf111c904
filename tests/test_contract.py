"""The contract, the suite that holds brokers to it, the model and the docs say the same."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker import every_verb

from windlass import conformance
from windlass.broker.contract import Broker, Consume, Produce, obligations
from windlass.broker.intake import Intake
from windlass.broker.management import Configure, Operate, Plan, Read
from windlass.broker.memory import MemoryBroker
from windlass.conformance import suite
from windlass.core.state import diagram

ROOT = Path(__file__).parent.parent
PARTS = (Produce, Consume, Intake, Plan, Operate, Configure, Read, Broker)
VERBS = {
    name: member
    for part in PARTS
    for name, member in vars(part).items()
    if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
}


def written_tests() -> list[Callable[..., Any]]:
    """Every test of the suite, in the module that it is written in."""
    names = [module.name for module in pkgutil.iter_modules(conformance.__path__)]
    modules = [importlib.import_module(f"{conformance.__name__}.{name}") for name in names]
    return [
        member
        for module in modules
        for name, member in vars(module).items()
        if name.startswith("test_") and member.__module__ == module.__name__
    ]


def collected_tests() -> dict[str, Callable[..., Any]]:
    """Every test that a broker is held to when it imports the suite."""
    return {name: member for name, member in vars(suite).items() if name.startswith("test_")}


def obligation_of(test: str) -> str:
    """`test_<obligation>` or `test_<obligation>__<variant>`."""
    return test.removeprefix("test_").partition("__")[0]


def test_the_contract_has_obligations() -> None:
    """A mistake in reading the docstrings must not pass for an empty contract."""
    assert len(obligations()) > 150
    assert obligations()["settle_is_fenced"] == "settle"
    assert obligations()["capabilities_are_declared"] == "capabilities"


def test_every_obligation_line_is_read() -> None:
    """A list item that is not `name: text` would be an obligation that nobody tests."""
    items = [
        line.strip()
        for part in PARTS
        for member in vars(part).values()
        for line in (getattr(member, "__doc__", None) or "").splitlines()
        if line.strip().startswith("- ")
    ]
    assert [item for item in items if item.removeprefix("- ").partition(":")[0] not in obligations()] == []


def test_every_obligation_has_a_test() -> None:
    tested = {obligation_of(name) for name in collected_tests()}
    assert sorted(obligations().keys() - tested) == []


def test_every_test_is_for_an_obligation() -> None:
    tests = {test.__name__: test.__module__ for test in written_tests()}
    strangers = [name for name in {**tests, **collected_tests()} if obligation_of(name) not in obligations()]
    assert sorted(strangers) == []


def test_every_test_is_collected() -> None:
    """A module that the suite forgets, or a name that two modules use, would be a test that never runs."""
    collected = collected_tests()
    forgotten = [test for test in written_tests() if collected.get(test.__name__) is not test]
    assert sorted(f"{test.__module__}.{test.__name__}" for test in forgotten) == []


def test_every_test_is_a_coroutine_on_a_store() -> None:
    """Anything else would be collected, and pass without being run on the broker."""
    wrong = [
        name
        for name, test in collected_tests().items()
        if not inspect.iscoroutinefunction(test) or next(iter(inspect.signature(test).parameters)) != "store"
    ]
    assert wrong == []


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_model_has_every_verb(verb: str) -> None:
    wanted, found = VERBS[verb], inspect.getattr_static(MemoryBroker, verb)
    assert type(found) is type(wanted)
    if isinstance(wanted, property):
        assert isinstance(found, property)
        wanted, found = wanted.fget, found.fget
    assert wanted is not None
    assert found is not None
    assert inspect.iscoroutinefunction(found) == inspect.iscoroutinefunction(wanted)
    assert inspect.signature(found, eval_str=True) == inspect.signature(wanted, eval_str=True)


def test_refusals_are_tried_with_every_verb() -> None:
    """A verb that is not in the table could raise an error of a driver, and no test would see it."""
    coroutines = {name for name, member in VERBS.items() if inspect.iscoroutinefunction(member)}
    assert {every_verb.verb_of(name) for name in every_verb.VERBS} == coroutines - {"close"}


def test_the_model_has_no_other_verb() -> None:
    """What only the model can do would be used, and then missing in every store."""
    assert {name for name in vars(MemoryBroker) if not name.startswith("_")} == set(VERBS)


def test_the_state_diagram_is_the_transition_table() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- states -->\s*```mermaid\n(.*?)```\s*<!-- /states -->", text, re.DOTALL)
    assert blocks == [diagram()]
