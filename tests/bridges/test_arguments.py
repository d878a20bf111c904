"""Where the arguments of a job come from."""

import pytest

from windlass.bridges.arguments import Arguments, Said
from windlass.bridges.fields import Opened, Unreadable
from windlass.bridges.message import Message
from windlass.errors import InvalidOption

MESSAGE = Message(
    body=b'{"id": 7, "to": {"street": "Main St", "zip": null}, "lines": [1, 2]}',
    headers={"tenant": "acme"},
    key="k",
    subject="orders.eu.new",
)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("body", MESSAGE.body),
        ("body.to", b'{"street":"Main St","zip":null}'),
        ({"order": "body.id", "tenant": "headers.tenant"}, b'{"order":7,"tenant":"acme"}'),
        ({"lines": "body.lines", "to": "body.to"}, b'{"lines":[1,2],"to":{"street":"Main St","zip":null}}'),
        ({"region": "message.subject.1", "key": "message.key"}, b'{"region":"eu","key":"k"}'),
        ({"a": "body.nothing", "b": "headers.nothing", "c": "body.to.zip", "d": "body.id.deeper"}, b"{}"),
    ],
)
def test_arguments_are_read_from_where_they_are(said: Said, found: bytes) -> None:
    assert Arguments(said).of(Opened(MESSAGE)) == found


def test_the_whole_body_may_be_one_argument() -> None:
    assert Arguments({"event": "body"}).of(Opened(Message(body=b'[1, {"a": 2}]'))) == b'{"event":[1,{"a":2}]}'


@pytest.mark.parametrize(
    "said", ["body", "body.to", {"a": "body.id"}, {"a": "body"}, {"a": "headers.tenant"}]
)
def test_a_message_without_a_body_has_no_arguments(said: Said) -> None:
    with pytest.raises(Unreadable, match="tombstone"):
        Arguments(said).of(Opened(Message(body=None)))


@pytest.mark.parametrize(("said", "body"), [("body.to", b"{}"), ("body.to", b"no"), ({"a": "body.b"}, b"no")])
def test_what_is_not_there_is_said(said: Said, body: bytes) -> None:
    with pytest.raises(Unreadable, match=r"no body\.to|not JSON"):
        Arguments(said).of(Opened(Message(body=body)))


@pytest.mark.parametrize(
    "said",
    ["", "headers.tenant", "body.", "body..a", "bodies", {}, {"a": "fixed"}, {"a": "body."}, {"a": 1}, 1],
)
def test_what_leads_nowhere_is_refused(said: Said) -> None:
    with pytest.raises(InvalidOption, match="arguments"):
        Arguments(said)
