"""What pages name in running text exists: commands, routes, methods, classes, metrics, scopes."""

import inspect
import json
import re
from pathlib import Path

import pytest
from tests.test_docs import CLI, PAGES, ROOT, named, prose, reference, rows

import windlass
import windlass.errors
from windlass import RetryPolicy, Windlass
from windlass.admin.keys import Scope
from windlass.api.openapi import described
from windlass.api.server import build
from windlass.api.shapes import Settle
from windlass.cli.grammar import words
from windlass.client.flow_handle import Flow
from windlass.client.handle import Job
from windlass.observe import measures
from windlass.observe.exposition import Measure
from windlass.testing.bench import Bench

DOCS = ROOT / "docs"
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)", re.DOTALL)


def spans(page: Path) -> list[str]:
    """The pieces of code in the running text of a page."""
    return [re.sub(r"\s+", " ", found) for found in _SPAN.findall(prose(page))]


# --- commands -----------------------------------------------------------------------------------------------

HISTORY = ("CHANGELOG.md", "docs/decisions")
INLINE = [
    (page, span)
    for page in PAGES
    if page != CLI and not named(page).startswith(HISTORY)
    for span in spans(page)
    if re.match(r"windlass [a-z]", span)
]


@pytest.mark.parametrize(("page", "line"), INLINE, ids=lambda value: value if isinstance(value, str) else "")
def test_commands_in_running_text_exist(page: Path, line: str) -> None:
    _, command, *rest = line.split(" ")
    said = reference(command)
    assert said, f"{named(page)}: there is no command {command}"
    for option in re.findall(r"(?<=\s)--[a-z-]+", line):
        assert f"`{option}`" in said, f"{named(page)}: windlass {command} has no {option}"
    verb = next((word for word in words(rest) if word != "APP" and ":" not in word), None)
    if f"### {command} " in said and verb is not None:
        assert f"### {command} {verb}\n" in said, f"{named(page)}: windlass {command} has no verb {verb}"


def test_there_are_commands_in_running_text() -> None:
    assert len(INLINE) > 60


# --- routes -------------------------------------------------------------------------------------------------

ROUTE = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) (/(?:v1/|enqueue|metrics|healthz|readyz)[\w/{}.-]*)")


def test_routes_exist() -> None:
    paths = json.loads(described(build(Windlass("memory://"))))["paths"]
    known = {
        (verb.upper(), re.sub(r"\{[^}]*\}", "{}", path)) for path, verbs in paths.items() for verb in verbs
    }
    unlisted = {("GET", "/metrics"), ("GET", "/openapi.json")}
    named_routes = {
        (named(page), verb, re.sub(r"\{[^}]*\}", "{}", path.rstrip("/.")))
        for page in PAGES
        if not named(page).startswith(HISTORY)
        for span in spans(page)
        for verb, path in ROUTE.findall(span)
    }
    assert len(named_routes) > 40
    assert [route for route in named_routes if route[1:] not in known | unlisted] == []


# --- Python -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "prefix", "kind"),
    [("tasks.md", "job", Job), ("flows.md", "flow", Flow), ("testing.md", "t", Bench)],
)
def test_methods_exist(page: str, prefix: str, kind: type) -> None:
    found = {
        name for span in spans(DOCS / page) for name in re.findall(rf"(?<![\w.]){prefix}\.([a-z_]+)", span)
    }
    known = {*dir(kind), *inspect.get_annotations(kind), *getattr(kind, "__slots__", ())}
    for base in kind.__mro__:
        if base.__module__.startswith("windlass"):
            known |= set(re.findall(r"self\.([a-z]\w*)", inspect.getsource(base)))
    assert len(found) > 4
    assert found - known == set()


def test_errors_exist_and_are_described() -> None:
    page = (DOCS / "retries-and-errors.md").read_text().partition("## Errors of the client\n")[2]
    described_there = set(re.findall(r"`([A-Z]\w+)`", page))
    raised = {name for name in vars(windlass.errors) if re.match("[A-Z]", name)}
    bases = {"ResultError", "PayloadTooLarge"}
    of_workers = {"UnreadablePayload", "LeaseLost", "ContractError"}
    assert described_there == raised - bases - of_workers


def test_the_policy_is_that_of_the_code() -> None:
    described_there = {row[0]: row[1].strip('`"') for row in rows(DOCS / "retries-and-errors.md")}
    policy = RetryPolicy()
    for name in ("max_attempts", "base", "backoff", "factor", "cap", "jitter"):
        assert described_there[name] == str(getattr(policy, name)), name


def test_names_of_the_package_can_be_imported() -> None:
    for page in PAGES:
        if named(page).startswith(HISTORY):
            continue
        for statement in re.findall(r"^from windlass import ([\w, ]+)$", page.read_text(), re.MULTILINE):
            for name in statement.split(", "):
                assert hasattr(windlass, name), f"{named(page)}: {name}"


# --- the API, metrics ---------------------------------------------------------------------------------------


def test_the_scopes_are_those_of_the_code() -> None:
    described_there = [row[0] for row in rows(DOCS / "http.md")]
    start = described_there.index("scope")
    assert described_there[start + 1 : start + 1 + len(Scope)] == [str(scope) for scope in Scope]


def test_the_outcomes_are_those_of_the_code() -> None:
    section = prose(DOCS / "http.md").partition("| `outcome` |")[2].partition("\n\n")[0]
    told = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert set(told) == set(Settle.__annotations__["outcome"].__args__)


def test_the_metrics_are_those_of_the_code() -> None:
    told = {name for row in rows(DOCS / "observability.md") for name in re.findall(r"windlass_\w+", row[0])}
    made = {found.name for found in vars(measures).values() if isinstance(found, Measure)}
    assert len(told) > 15
    assert {name for name in told if not name.startswith("windlass_history_")} == made
