"""Secrets: found by name and by mark, and taken out of texts however they are written there."""

import dataclasses
import json
from datetime import datetime
from typing import Annotated, Any, NamedTuple, NewType, TypedDict
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.secret import (
    MASK,
    WITHHELD,
    Secret,
    is_marked,
    is_secret_name,
    masked,
    secret_texts,
    secrets_of_json,
    without,
)
from windlass.core.signature import Signature


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


# --- in JSON, by types --------------------------------------------------------------------------------------


class Renamed(msgspec.Struct, rename="camel"):
    user_name: str
    pass_phrase: Annotated[str, Secret]
    api_key: str = ""


class Row(msgspec.Struct, array_like=True):
    plain: str
    hidden: Annotated[str, Secret]


class Told(TypedDict):
    plain: str
    hidden: Annotated[str | None, Secret]


class Pair(NamedTuple):
    plain: str
    hidden: Annotated[str, Secret]


Named = NewType("Named", Renamed)
Node = msgspec.defstruct("Node", [("hidden", Annotated[str, Secret]), ("plain", str)])


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Annotated[str, Secret], "hidden!"),
        (Annotated[str, Secret] | None, "hidden!"),
        (list[Annotated[str, Secret]], ["hidden!"]),
        (dict[str, Annotated[str, Secret]], {"any": "hidden!"}),
        (Renamed, {"userName": "plain", "passPhrase": "hidden!"}),
        (Renamed, {"userName": "plain", "passPhrase": None, "apiKey": "hidden!"}),
        (Named | None, {"userName": "plain", "passPhrase": "hidden!"}),
        (list[Renamed] | dict[str, list[Renamed]], {"x": [{"passPhrase": "hidden!"}]}),
        (tuple[int, Row], [1, ["plain", "hidden!"]]),
        (tuple[Row, ...], [["plain", "hidden!"]]),
        (Told, {"plain": "plain", "hidden": "hidden!"}),
        (Pair, ["plain", "hidden!"]),
        (Node, {"hidden": "hidden!", "plain": "plain"}),
        (Any, {"a": [{"password": ["hidden!"]}]}),
        (int, {"password": "hidden!"}),
        ("nonsense", {"password": "hidden!", "plain": ["plain"]}),
    ],
)
def test_secrets_in_json_are_found_by_their_types_and_names(annotation: Any, value: Any) -> None:
    assert secrets_of_json(value, annotation) == {"hidden!"}


def test_what_python_writes_otherwise_than_json_is_known_both_ways() -> None:
    found = secrets_of_json("aGlkZGVu/w==", Annotated[bytes, Secret])
    assert {"aGlkZGVu/w==", r"hidden\xff", "hidden�"} <= found
    found = secrets_of_json("2026-01-31T08:00:00Z", Annotated[datetime, Secret])
    assert "2026-01-31 08:00:00+00:00" in found
    assert secrets_of_json("no time", Annotated[datetime, Secret]) == {"no time"}


def test_the_secrets_of_a_payload() -> None:
    def send(
        plain: str, /, pin: int, *rest: Annotated[str, Secret], hidden: Annotated[str, Secret] = ""
    ) -> None: ...

    signature = Signature(send)
    payload = msgspec.json.encode(
        {"v": 1, "a": ["plain", 12345, "by position"], "k": {"hidden": "by mark", "token": "of no parameter"}}
    )
    assert signature.secrets_in(payload) == {"12345", "by position", "by mark", "of no parameter"}
    assert signature.secrets_in(b"nonsense") == frozenset()


@given(st.text("abcdef", min_size=8, max_size=40), st.integers(4, 30), st.sampled_from(["…", "..."]))
def test_what_is_left_of_a_secret_at_a_cut_is_taken_out(secret: str, length: int, cut: str) -> None:
    piece = secret[: min(length, len(secret) - 1)]
    assert without(f"0 {piece}{cut}", [secret]) == f"0 {MASK}{cut}"
    piece = secret[-min(length, len(secret) - 1) :]
    assert without(f"{cut}{piece} 0", [secret]) == f"{cut}{MASK} 0"
    assert without(f"{cut} plain {cut}", [secret]) == f"{cut} plain {cut}"


def test_the_lines_of_a_long_secret_go_one_by_one() -> None:
    key = "-----BEGIN KEY-----\nabcdef\nghijkl\n-----END KEY-----\n"
    assert without("  | abcdef\n  | ghijkl\n  | x", [key]) == f"  | {MASK}\n  | {MASK}\n  | x"


def test_too_many_secrets_keep_the_whole_text_back() -> None:
    assert without("nothing of it", [f"secret {n}" for n in range(1_001)]) == WITHHELD
    assert without("", [f"secret {n}" for n in range(1_001)]) == ""
