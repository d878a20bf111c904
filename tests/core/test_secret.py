"""Secrets: found by name and by mark, and taken out of texts however they are written there."""

import dataclasses
import json
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.secret import MASK, Secret, is_marked, is_secret_name, masked, secret_texts, without


@pytest.mark.parametrize("name", ["password", "Password", "user_password", "X-Api-Key", "API_TOKEN", "jwt"])
def test_what_is_called_like_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["user", "tokens_used", "passwordless", "keyboard", "monkey", ""])
def test_what_is_not(name: str) -> None:
    assert not is_secret_name(name)


def test_marks() -> None:
    assert is_marked(Annotated[str, Secret])
    assert is_marked(Annotated[str, "other", Secret()])
    assert is_marked(Annotated[str, Secret] | None)
    assert not is_marked(Annotated[str, "other"])
    assert not is_marked(str)


class Login(msgspec.Struct):
    user: str
    phrase: Annotated[str, Secret]


@dataclasses.dataclass
class Card:
    holder: str
    cvv: int
    login: Login


def test_values_are_found_wherever_they_are() -> None:
    value: dict[str, Any] = {
        "plain": "visible",
        "password": "hunter22",
        "cards": [Card("Ada Lovelace", 1234, Login("ada", "open sesame"))],
        "headers": {"Authorization": ["Bearer abcdef", None, True]},
    }
    assert secret_texts(value) == {"hunter22", "1234", "open sesame", "Bearer abcdef"}
    assert secret_texts("visible") == frozenset()
    assert secret_texts({"a": ["inner"]}, secret=True) == {"inner"}
    assert secret_texts(b"some bytes", secret=True) == {"some bytes"}


def test_a_value_that_would_be_found_everywhere_is_left() -> None:
    assert secret_texts({"pin": 1, "password": "abc"}) == frozenset()


def test_depth_is_bounded() -> None:
    value: Any = {"password": "deep inside"}
    for _ in range(10_000):
        value = [value]
    assert secret_texts(value) == frozenset()


_AROUND = st.text(alphabet="0123456789 ")


@given(st.text(min_size=4).filter(lambda text: not set(text) & set("0123456789 ")), _AROUND, _AROUND)
def test_no_common_form_is_left_in_a_text(secret: str, before: str, after: str) -> None:
    for form in (secret, repr(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        cleaned = without(f"{before}{form}{after}", [secret])
        assert secret not in cleaned
        assert form.strip("'\"") not in cleaned or not form.strip("'\"")
    assert without(f"{before}{quote(secret, safe='', errors='replace')}{after}", [secret]).count(MASK) == 1


def test_longer_secrets_go_first() -> None:
    assert without("abcdef abcd", ["abcd", "abcdef"]) == f"{MASK} {MASK}"


def test_what_is_shown_is_masked() -> None:
    value = {"user": "ada", "password": "hunter22", "cards": [{"cvv": 123, "n": 1}], "token": None}
    assert masked(value) == {"user": "ada", "password": MASK, "cards": [{"cvv": MASK, "n": 1}], "token": None}
    assert masked(["a"], secret=True) == MASK
