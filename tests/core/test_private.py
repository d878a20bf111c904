"""Personal data in texts: what looks like it is found, and what only resembles it is left alone."""

import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import Secret, Windlass
from windlass.core.private import PATTERNS, check_patterns, masked_private, without_private
from windlass.core.secret import MASK, Cleaner
from windlass.core.showing import Shower
from windlass.core.signature import Signature
from windlass.errors import InvalidOption

ALL = tuple(PATTERNS)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("to ada@example.com.", "to [email]."),
        ("<ada.l+x@mail.example.co.uk>", "<[email]>"),
        ("user=ada%40example.com&x=1", "[email]&x=1"),
        ("jörg@exämple.de wrote", "[email] wrote"),
        ("card 4111 1111 1111 1111 declined", "card [card] declined"),
        ("5500-0000-0000-0004", "[card]"),
        ("378282246310005", "[card]"),
        ("call +49 30 1234567", "call [phone]"),
        ("0049 (30) 123-4567!", "[phone]!"),
        ("(030) 123456", "[phone]"),
        ("030 1234567, 555-123-4567", "[phone], [phone]"),
    ],
)
def test_what_looks_private_is_masked(text: str, clean: str) -> None:
    assert without_private(text, ALL) == clean
    assert without_private(text, ()) == text


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",  # fails Luhn
        "0000000000000000",
        "01900000-0000-7000-8000-000000001708",
        "2026-11-19T05:59:46.123456Z",
        "19.11.2026",
        "@decorator and a @ b",
        "line 1234, in send",
        "took 1750000020123456 µs",
        "0.1234567",
        "v1.22.333",
    ],
)
def test_what_only_resembles_it_stays(text: str) -> None:
    assert without_private(text, ALL) == text


@given(st.text(max_size=300))
def test_any_text_is_cleaned_once_and_for_all(text: str) -> None:
    once = without_private(text, ALL)
    assert without_private(once, ("email",)) == once
    assert len(once) <= 8 * len(text) + 8


def test_long_texts_take_no_longer_than_they_are() -> None:
    for part in ("a.", "1 ", "0-", "a@", "+1 ", "(0"):
        without_private(part * 20_000, ALL)


def test_a_pattern_that_there_is_not_is_refused() -> None:
    assert check_patterns(["phone", "email"]) == ("email", "phone")
    with pytest.raises(InvalidOption, match='no pattern "mail"; patterns: email, card, phone'):
        Windlass("memory://", private_patterns=["mail"])


def test_values_and_keys_are_masked_and_the_rest_is_as_it_was() -> None:
    value = {"a@b.example": [1, True, None, 2.5, "x", {"n": 4111111111111111}]}
    assert masked_private(value, ALL) == {"[email]": [1, True, None, 2.5, "x", {"n": "[card]"}]}
    assert masked_private(value, ()) is value


class Person(msgspec.Struct):
    name: str
    email: str


def signed(private: tuple[str, ...]) -> Signature:
    def invite(email: str, who: Person, phrase: Annotated[str, Secret], more: dict[str, Any]) -> Person: ...

    return Signature(invite, private=private)


def test_private_names_are_masked_as_secrets_are() -> None:
    signature = signed(("email", "Home-Address"))
    who = Person("Ada", "ada@home.example")
    more = {"work_email": "ada@work.example", "home_address": "Inner Circle 1", "age": 36}
    payload = signature.encode(("ada@mail.example", who, "open sesame", more), {})
    shown = Shower(signature).arguments(payload)["kwargs"]
    assert shown == {
        "email": MASK,
        "who": {"name": "Ada", "email": MASK},
        "phrase": MASK,
        "more": {"work_email": MASK, "home_address": MASK, "age": 36},
    }
    found = signature.secrets_in(payload)
    assert {"ada@mail.example", "ada@home.example", "ada@work.example", "Inner Circle 1"} < found
    assert Cleaner(found)("no mailbox ada@home.example") == f"no mailbox {MASK}"
    assert Shower(signature, secrets=True).arguments(payload)["kwargs"]["email"] == "ada@mail.example"
    result = signature.encode_result(who)
    assert Shower(signature).result(result, payload) == {"name": "Ada", "email": MASK}
    assert "ada@home.example" in json.dumps(Shower(signed(())).arguments(payload))


def test_a_result_is_shown_without_what_its_job_was_called_with() -> None:
    """Names tell nothing of a text that the task has put together."""

    def welcome(email: str, pin: int, times: int) -> dict[str, Any]: ...

    signature = Signature(welcome, private=("email",))
    payload = signature.encode(("ada@example.com", 471_147, 3), {})
    value = {"said": ["to ada@example.com", 471_147, 3], "by ada@example.com": None}
    result = signature.encode_result(value)
    assert Shower(signature).result(result, payload) == {
        "said": [f"to {MASK}", MASK, 3],
        f"by {MASK}": None,
    }
    assert Shower(signature, secrets=True).result(result, payload) == value
    assert Shower(signature, ("email",)).result(result, b"not JSON") == {
        "said": ["to [email]", 471_147, 3],
        "by [email]": None,
    }


def test_other_tasks_keep_their_names() -> None:
    plain = signed(())
    assert not plain.is_secret("email")
    assert signed(("email",)).is_secret("email")


def test_patterns_are_for_what_is_shown() -> None:
    signature = signed(())
    payload = signature.encode(("a@b.example", Person("Ada", "x"), "open sesame", {}), {})
    assert Shower(signature, ("email",)).arguments(payload)["kwargs"]["email"] == "[email]"
    assert Shower(signature, ("email",), secrets=True).arguments(payload)["kwargs"]["email"] == "a@b.example"
    assert Cleaner(["hunter2"], ("email",))("hunter2 of a@b.example") == f"{MASK} of [email]"


@pytest.mark.parametrize("given_", ["email", [1], [""], None])
def test_private_takes_names(given_: Any) -> None:
    app = Windlass("memory://")
    with pytest.raises(InvalidOption, match="private must be names"):

        @app.task(private=given_)
        def send(email: str) -> None: ...
