"""Every language answers the same cases as windlass.core: thousands for each rule."""

from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.redis.servers import redis_binary, running
from tests.broker.rules.cases import RULES, Case, Speaker
from tests.broker.rules.lua import Lua

from windlass.broker.redis.scripts import source

_PER_EXAMPLE, _EXAMPLES = 100, 40


@pytest.fixture(scope="module")
def lua() -> Iterator[Speaker]:
    with running(redis_binary()) as server, redis.Redis(unix_socket_path=str(server.socket)) as client:
        yield Lua(client)


@pytest.mark.parametrize("name", sorted(RULES))
def test_lua_rules_as_core_does(lua: Speaker, name: str) -> None:
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
        assert list(lua.answer([(name, case) for case in cases])) == expected

    compare()


def test_every_rule_of_lua_is_compared() -> None:
    declared = {
        line.split("(")[0].removeprefix("function rules.")
        for line in source("parts", "rules").splitlines()
        if line.startswith("function rules.")
    }
    covered_by_others = {"hold_delay", "crash_delay", "full"}
    assert declared - covered_by_others == set(RULES)
