"""Settings come from keywords, then from the environment, then from the defaults."""

from typing import Any

import pytest

from windlass import Windlass
from windlass.config import Config, Settings, configure
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
        ({}, {"WINDLASS_URL": "mysql://host"}, "WINDLASS_URL: no store is known"),
        ({}, {"WINDLASS_NAMESPACE": "A b"}, "WINDLASS_NAMESPACE: namespace 'A b' does not match"),
        ({"url": ""}, {}, "url is empty; give it a value, or leave it out"),
        ({}, {"WINDLASS_URL": ""}, "WINDLASS_URL is empty"),
        ({"url": "memory://root:secret@[::1"}, {}, "url is not a URL, such as sqlite:///windlass.db"),
        ({"max_size": 0}, {}, "max_size must be a whole number"),
        ({"events_kept": 0}, {}, "events_kept must be a whole number"),
    ],
    ids=str,
)
def test_a_bad_setting_is_named(given: dict[str, Any], environment: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        configure(given, environment)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_keywords_are_the_settings() -> None:
    assert {"url", *Settings.__annotations__} == set(Config.__struct_fields__)


def test_an_unknown_setting_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidOption, match=r"^unknown option 'retries'; options are: archive, beat,"):
        Windlass("memory://", retries=3)  # pyright: ignore[reportCallIssue]


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(configure({"url": "memory://root:secret@host/db"}, {}))


def test_the_size_limit_reaches_the_broker() -> None:
    assert configure({"max_size": 2**30}, {}).broker_options().max_size == 2**30
