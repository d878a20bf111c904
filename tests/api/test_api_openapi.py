"""The description of the API, and what answers when it is taken at its word."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from tests.api.house import House
from tests.api.served import Served

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi import checks

LEFT_OUT = ("/v1/events",)
"""Streams: an answer that does not end."""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    served = Served(tmp_path_factory.mktemp("keyed"), "--rate", "100000")
    scopes = [word for scope in ("enqueue", "read", "work", "operate") for word in ("--scope", scope)]
    key = served.command("keys", "tasks:app", "create", *scopes).strip()
    served.start()
    yield served, key
    served.stop()


@pytest.fixture(scope="module")
def described(keyed: tuple[Served, str]) -> Any:
    served, key = keyed
    document = httpx.get(f"{served.url}/openapi.json", headers=_headers(key)).json()
    for path in LEFT_OUT:
        document["paths"].pop(path, None)
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.pop(
                "security", None
            )  # every request here carries the key, whatever else is wrong with it
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=served.url)
    return schema


def _headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
    schemathesis.checks.not_a_server_error,
]

TOO_LONG = (414, 431)
"""What the HTTP server itself says, without a body, of an address that it does not pass on."""


def keeps_its_word(described: Any, key: str, *, examples: int, derandomize: bool) -> None:
    """Ask every operation for what its description allows, and for what it does not."""
    failed: list[str] = []
    for found in described.get_all_operations():
        operation = found.ok()
        # Whatever stands in a path is text: nothing there can be wrong, and looking for it takes a second.
        can_be_wrong = bool(list(operation.body)) or bool(list(operation.query))
        modes = [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if can_be_wrong else [])]
        for mode in modes:
            strategy = operation.as_strategy(generation_mode=mode)

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=derandomize,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            @given(case=strategy)
            def ask(case: Any) -> None:
                answer = case.call(headers=_headers(key))
                if answer.status_code not in TOO_LONG:
                    case.validate_response(answer, checks=CHECKS)

            try:
                ask()
            except Unsatisfiable:
                continue
            except BaseExceptionGroup as error:
                failed += [f"{operation.label} ({mode.value}): {each}" for each in error.exceptions]
    assert not failed, "\n\n".join(failed)


def test_every_route_keeps_its_word(described: Any, keyed: tuple[Served, str]) -> None:
    keeps_its_word(described, keyed[1], examples=2, derandomize=True)


@pytest.mark.slow
def test_every_route_keeps_its_word_at_length(described: Any, keyed: tuple[Served, str]) -> None:
    keeps_its_word(described, keyed[1], examples=30, derandomize=False)


def test_the_description_names_every_route_with_its_scope(memory_house: House) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            document = (await client.get("/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        operations = {
            f"{method.upper()} {path}": operation
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        assert operations["POST /v1/jobs"]["x-scopes"] == ["enqueue"]
        assert operations["POST /v1/leases"]["x-scopes"] == ["work"]
        assert "x-scopes" not in operations["GET /healthz"]
        for name, operation in operations.items():
            assert operation["summary"], name
            assert "4XX" in operation["responses"], name
        wanted = document["components"]["schemas"]["Wanted"]
        assert wanted["additionalProperties"] is False
        assert "higher first" in wanted["properties"]["priority"]["description"]
        for reference in _references(document):
            assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]

    memory_house.run(story)


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def test_the_description_is_the_same_in_every_process(memory_house: House, tmp_path: Path) -> None:
    """Types are generated from it: it must not change by itself."""

    async def story() -> None:
        texts = set()
        for _ in range(2):
            async with memory_house.open() as client:
                texts.add(json.dumps((await client.get("/openapi.json")).json()))
        assert len(texts) == 1

    memory_house.run(story)
