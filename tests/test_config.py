"""Settings come from keywords, then from the environment, then from the defaults."""

from typing import Any

import pytest

from windlass import Windlass
from windlass.config import Config, configure
from windlass.core.settings import Retention
from windlass.core.units import HOUR, SECOND
from windlass.errors import InvalidOption


def test_the_defaults_are_those_of_the_design() -> None:
    config = configure({}, {})
    assert config == Config()
    assert (config.beat, config.session_ttl, config.grace) == (5 * SECOND, 30 * SECOND, 30 * SECOND)
    assert config.broker_options().retention is None


def test_a_keyword_wins_over_its_variable() -> None:
    environment = {"WINDLASS_SESSION_TTL": "40s", "WINDLASS_BEAT": "2", "WINDLASS_URL": "memory://"}
    config = configure({"session_ttl": 20, "grace": None}, environment)
    assert (config.session_ttl, config.beat, config.url) == (20 * SECOND, 2 * SECOND, "memory://")


def test_retention_reaches_the_broker() -> None:
    options = configure({"retention": "1h", "result_ttl": 0}, {}).broker_options()
    assert options.retention == Retention(retention=HOUR, result_ttl=0)


def test_the_environment_reaches_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "memory://")
    monkeypatch.setenv("WINDLASS_MAX_PAYLOAD", "1000")
    assert Windlass().config.max_payload == 1_000


@pytest.mark.parametrize(
    ("given", "environment", "words"),
    [
        ({"beat": 0}, {}, "beat must be longer than nothing"),
        ({"beat": "soon"}, {}, "beat must be seconds"),
        ({}, {"WINDLASS_BEAT": "soon"}, "WINDLASS_BEAT must be seconds"),
        ({"beat": 20}, {}, "session_ttl (30 s) must be at least two beats (20 s each)"),
        ({"max_payload": 0}, {}, "max_payload must be a whole number"),
        ({}, {"WINDLASS_MAX_PAYLOAD": "1k"}, "WINDLASS_MAX_PAYLOAD must be a whole number"),
        ({"namespace": "A b"}, {}, "namespace"),
        ({"namespace": 3}, {}, "namespace must be text, not 3"),
        ({"url": "mysql://root:secret@host/db"}, {}, 'no store is known for a URL that starts with "mysql:"'),
        ({"url": ""}, {}, "no store is known"),
    ],
    ids=str,
)
def test_a_bad_setting_is_named(given: dict[str, Any], environment: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        configure(given, environment)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
