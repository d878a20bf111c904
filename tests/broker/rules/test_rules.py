"""Every language answers the same cases as windlass.core: thousands for each rule."""

import asyncio
import re
from collections.abc import Iterator

import psycopg
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.redis.servers import redis_binary, running
from tests.broker.rules.cases import RULES, Case, Speaker
from tests.broker.rules.lua import Lua
from tests.broker.rules.sql import CALLS, Sql

from windlass.broker.contract import Options
from windlass.broker.postgres.install import quoted, rules
from windlass.broker.redis.scripts import source

__all__ = ["namespaces"]

_PER_EXAMPLE, _EXAMPLES = 100, 40


@pytest.fixture(scope="module")
def lua() -> Iterator[Speaker]:
    with running(redis_binary()) as server, redis.Redis(unix_socket_path=str(server.socket)) as client:
        yield Lua(client)


@pytest.fixture(scope="module")
def sql(namespaces: Namespaces) -> Iterator[Speaker]:
    async def installed() -> str:
        broker = await namespaces.open(None, Options())
        await broker.close()
        return broker.namespace

    schema = quoted(asyncio.run(installed()))
    with psycopg.connect(namespaces.server.dsn, autocommit=True) as connection:
        connection.execute(f"SET search_path = {schema}".encode())
        yield Sql(connection)


@pytest.mark.parametrize("name", sorted(RULES))
def test_lua_rules_as_core_does(lua: Speaker, name: str) -> None:
    _compare(lua, name)


@pytest.mark.parametrize("name", sorted(RULES))
def test_postgres_rules_as_core_does(sql: Speaker, name: str) -> None:
    _compare(sql, name)


def _compare(speaker: Speaker, name: str) -> None:
    rule = RULES[name]

    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
    )
    @given(st.lists(rule.cases, min_size=1, max_size=_PER_EXAMPLE))
    def compare(cases: list[Case]) -> None:
        expected = [rule.function(*case) for case in cases]
        assert list(speaker.answer([(name, case) for case in cases])) == expected

    compare()


def test_every_rule_of_lua_is_compared() -> None:
    declared = {
        line.split("(")[0].removeprefix("function rules.")
        for line in source("parts", "rules").splitlines()
        if line.startswith("function rules.")
    }
    covered_by_others = {"hold_delay", "crash_delay", "full"}
    assert declared - covered_by_others == set(RULES) - {
        "store_time",
        "take",
    }  # of `clock.lua` and `rule_take.lua`


def test_every_rule_of_postgres_is_compared() -> None:
    declared = set(re.findall(r"CREATE OR REPLACE FUNCTION (_\w+)", rules()))
    called = set(re.findall(r"\b(_\w+)\(", " ".join(CALLS.values())))
    covered_by_others = {"_ruling", "_rule_cancelled", "_hold_delay", "_crash_delay"}
    assert declared - covered_by_others == called
