"""The page on Redis says what the code does."""

from pathlib import Path

from windlass.broker.redis.acl import rules
from windlass.broker.redis.keys import BY_SCORE, HASHES, LEXSETS
from windlass.broker.redis.namespaces import REGISTRY
from windlass.broker.redis.url import SCHEMES, TIMEOUT

PAGE = (Path(__file__).parents[3] / "docs" / "redis.md").read_text()


def test_the_least_rights_are_those_of_the_page() -> None:
    assert f"ACL SETUSER jobs >password {' '.join(rules('windlass'))}\n" in PAGE


def test_the_keys_are_as_many_as_the_page_says() -> None:
    assert f"in {len(HASHES + LEXSETS + BY_SCORE)} keys" in PAGE
    assert f"`{REGISTRY.decode()}` lists" in PAGE


def test_every_kind_of_url_is_there() -> None:
    assert all(f"{scheme}://" in PAGE for scheme in SCHEMES)
    assert f"| `timeout` | {TIMEOUT:g} |" in PAGE
