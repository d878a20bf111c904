import re
from collections.abc import Callable
from enum import Enum, StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core import names
from windlass.errors import InvalidOption

NAMED: dict[str, Callable[[object], str]] = {
    "task": names.check_task,
    "queue": names.check_queue,
    "schedule": names.check_schedule,
    "flow": names.check_flow,
    "app": names.check_app,
}
named = pytest.mark.parametrize("what", NAMED)


@given(st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,99}\Z"), st.sampled_from(sorted(NAMED)))
def test_names_of_the_pattern_pass(name: str, what: str) -> None:
    assert NAMED[what](name) == name


@given(st.text(), st.sampled_from(sorted(NAMED)))
def test_a_name_passes_if_and_only_if_it_matches(name: str, what: str) -> None:
    fits = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]*", name) is not None and len(name) <= 100
    if fits:
        assert NAMED[what](name) == name
    else:
        with pytest.raises(InvalidOption, match=f"{what} name"):
            NAMED[what](name)


@named
@pytest.mark.parametrize("bad", ["mail\n", "", "-x", "a b", "é", "a;drop", "a\0", "\ud800", "a'b", "{a}"])
def test_a_bad_name_is_shown_with_the_pattern(what: str, bad: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        NAMED[what](bad)
    assert str(refused.value) == f"{what} name {bad!r} does not match [A-Za-z0-9_][A-Za-z0-9_.:/@-]*"


@named
@pytest.mark.parametrize("bad", [None, 1, b"mail", ["mail"]])
def test_only_strings_are_names(what: str, bad: object) -> None:
    with pytest.raises(InvalidOption, match=f"{what} name must be a string, not"):
        NAMED[what](bad)


def test_a_long_name_is_refused_and_cut_short_in_the_message() -> None:
    assert names.check_queue("a" * 100) == "a" * 100
    with pytest.raises(InvalidOption, match="has 5,000 characters, the limit is 100") as refused:
        names.check_queue("a" * 5_000)
    assert len(str(refused.value)) < 300


class Queue(StrEnum):
    MAIL = "mail"


class Old(str, Enum):  # noqa: UP042 - common in older code
    MAIL = "mail"


class Sly(str):
    __slots__ = ()

    def __len__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "other"


@pytest.mark.parametrize("name", [Queue.MAIL, Old.MAIL, Sly("mail")])
def test_a_subclass_of_str_becomes_a_plain_one(name: str) -> None:
    for check in (names.check_queue, names.check_namespace, names.check_lane, names.check_key):
        assert check(name) == "mail"
        assert type(check(name)) is str


def test_a_subclass_cannot_lie_about_its_length() -> None:
    with pytest.raises(InvalidOption, match="200 characters"):
        names.check_queue(Sly("a" * 200))


@given(st.from_regex(r"\A[a-z][a-z0-9_]{0,47}\Z"))
def test_namespaces_of_the_pattern_pass(name: str) -> None:
    if name.startswith("pg_"):
        return
    assert names.check_namespace(name) == name


@pytest.mark.parametrize(
    "bad", ["", "A", "1a", "_a", "a-b", "a.b", "a\n", "a" * 49, "pg_x", "information_schema", 1]
)
def test_other_namespaces_are_refused(bad: object) -> None:
    with pytest.raises(InvalidOption, match="namespace"):
        names.check_namespace(bad)


TEXTS: dict[str, tuple[Callable[[object], str], int, int]] = {
    "lane": (names.check_lane, 0, 200),
    "key": (names.check_key, 1, 200),
    "tag": (names.check_tag, 1, 100),
}


@given(
    st.text(st.characters()) | st.text(st.characters(categories=["Cs", "Cc", "Lu"])),
    st.sampled_from(sorted(TEXTS)),
)
def test_text_passes_if_and_only_if_it_is_clean_and_short(text: str, what: str) -> None:
    check, least, most = TEXTS[what]
    unclean = any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in text)
    if not unclean and least <= len(text.encode()) <= most:
        assert check(text) == text
    else:
        with pytest.raises(InvalidOption, match=what):
            check(text)


@pytest.mark.parametrize("what", TEXTS)
def test_the_limit_of_text_is_in_bytes(what: str) -> None:
    check, _, most = TEXTS[what]
    for letter, size in (("a", 1), ("é", 2), ("€", 3), ("😀", 4)):
        assert check(letter * (most // size))
        with pytest.raises(InvalidOption, match=f"the limit is {most}"):
            check(letter * (most // size + 1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("a\nb", "lane 'a\\nb' has a control character (U+000A) at position 1; remove it"),
        ("\x7f", "U+007F"),
        ("\x85", "U+0085"),
        ("a\ud800", "has a lone surrogate at position 1"),
        (None, "lane must be a string, not None"),
    ],
)
def test_bad_text_is_explained(bad: object, message: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        names.check_lane(bad)
    assert message in str(refused.value)


def test_no_lane_is_a_lane_but_no_key_is_not_a_key() -> None:
    assert names.check_lane("") == ""
    with pytest.raises(InvalidOption, match="key must not be empty"):
        names.check_key("")


def test_tags_are_kept_once_and_in_order() -> None:
    assert names.check_tags(["b", "a", "b"]) == ("b", "a")
    assert names.check_tags(()) == ()
    assert names.check_tags(str(n) for n in range(16)) == tuple(str(n) for n in range(16))


@pytest.mark.parametrize(
    "bad", ["abc", b"abc", 1, None, {"a": 1}, [1], [""], ["a\n"], [str(n) for n in range(17)]]
)
def test_bad_tags_are_refused(bad: object) -> None:
    with pytest.raises(InvalidOption, match="tag"):
        names.check_tags(bad)


@given(
    st.dictionaries(
        st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_-]{0,20}\Z"), st.text("abc é", max_size=50), max_size=32
    )
)
def test_headers_are_copied(headers: dict[str, str]) -> None:
    checked = names.check_headers(headers)
    assert checked == headers
    assert checked is not headers


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([("a", "b")], "headers must be a mapping"),
        (None, "headers must be a mapping"),
        ({"a": 1}, 'header "a" must be a string, not 1'),
        ({1: "a"}, "header name must be a string, not 1"),
        ({"a b": "c"}, "header name 'a b' does not match"),
        ({"a": "x\r\nSet-Cookie: y"}, 'header "a"'),
        ({"a": "\0"}, "control character (U+0000)"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"a": "x" * 8_193}, "the limit is 8,192"),
        ({str(n): "" for n in range(33)}, "at most 32 headers, got 33"),
        ({str(n): "x" * 8_000 for n in range(3)}, "headers have 24,003 bytes together, the limit is 16,384"),
    ],
)
def test_bad_headers_are_refused(bad: object, message: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        names.check_headers(bad)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 300
