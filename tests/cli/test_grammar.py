"""`windlass NOUN [APP] [VERB] ...`: the app before or behind the verb, or from WINDLASS_APP."""

from collections.abc import Iterator

import pytest
from cyclopts import App

from windlass.cli.grammar import FLAGS, arranged
from windlass.cli.program import build, verbs

VERBS = {"jobs": frozenset({"list", "show", "cancel"}), "worker": frozenset[str]()}


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("jobs a:b", "jobs a:b"),
        ("jobs a:b --state dead --json", "jobs a:b --state dead --json"),
        ("jobs a:b show ID", "jobs show a:b ID"),
        ("jobs show a:b ID", "jobs show a:b ID"),
        ("jobs --json a:b show ID", "jobs show --json a:b ID"),
        ("jobs a:b --json show ID", "jobs show a:b --json ID"),
        ("jobs --state dead a:b", "jobs --state dead a:b"),
        ("jobs a:b --queue show", "jobs a:b --queue show"),
        ("worker a:b --processes 2 --reload", "worker a:b --processes 2 --reload"),
        ("jobs -vv a:b show ID", "jobs show -vv a:b ID"),
        ("other a:b show", "other a:b show"),
        ("", ""),
    ],
)
def test_the_verb_comes_first(typed: str, read: str) -> None:
    assert arranged(typed.split(), VERBS, None) == read.split()


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("jobs", "jobs x:y"),
        ("jobs --state dead", "jobs x:y --state dead"),
        ("jobs --state=dead --json", "jobs x:y --state=dead --json"),
        ("jobs show ID", "jobs show x:y ID"),
        ("jobs show --json ID", "jobs show x:y --json ID"),
        ("jobs a:b show ID", "jobs show a:b ID"),
        ("jobs --queue c:d", "jobs x:y --queue c:d"),
        ("jobs --json a:b", "jobs --json a:b"),
        ("jobs --queue mail a:b", "jobs --queue mail a:b"),
        ("jobs show -- ID", "jobs show x:y -- ID"),
        ("worker --queues high=5", "worker x:y --queues high=5"),
        ("--version", "--version"),
    ],
)
def test_the_variable_names_the_app(typed: str, read: str) -> None:
    assert arranged(typed.split(), VERBS, "x:y") == read.split()


def test_the_flags_are_those_of_the_commands() -> None:
    """A flag that is not listed would be taken to have a value."""
    found = {name for command in _commands(build()) for name in _flags(command)}
    assert found | {"--help", "-h"} == FLAGS


def _commands(app: App) -> Iterator[App]:
    for name, command in app.resolved_commands().items():
        if not name.startswith("-"):
            yield command
            yield from _commands(command)


def _flags(command: App) -> Iterator[str]:
    for argument in command.assemble_argument_collection():
        if argument.hint is bool or argument.parameter.count:
            yield from argument.names


def test_every_noun_but_the_demo_takes_an_app() -> None:
    known = verbs(build())
    assert set(known) == {
        *("worker", "dev", "enqueue", "jobs", "dead", "queues", "lanes", "schedules", "flows", "workers"),
        *("control", "serve", "keys", "webhooks", "history", "top"),
        *("intake", "intakes", "relays"),
        *("explain", "check", "migrate", "export", "import", "doctor", "forget"),
    }
    assert known["dead"] == {"list", "groups", "show", "replay", "edit", "discard", "audit"}
    assert known["worker"] == set()
