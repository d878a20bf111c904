"""The settings of webhooks, as keywords and as variables."""

import pytest

from windlass import Windlass
from windlass.config import configure
from windlass.core.webhook import QUEUE, TASK
from windlass.errors import InvalidOption


@pytest.mark.parametrize(
    ("text", "is_on"), [("true", True), ("1", True), ("on", True), ("No", False), ("0", False)]
)
def test_webhooks_are_switched_by_a_word(text: str, is_on: bool) -> None:
    assert configure({}, {"WINDLASS_WEBHOOKS": text}).webhooks is is_on


@pytest.mark.parametrize("value", ["maybe", 2, "", 1.0])
def test_what_is_no_switch_is_refused(value: object) -> None:
    with pytest.raises(InvalidOption, match="webhooks"):
        configure({"webhooks": value}, {})


def test_what_is_allowed_is_a_list_or_text_with_commas() -> None:
    said = configure({"webhook_allow": ["10.0.0.0/8", " hooks.internal "]}, {})
    assert said.webhook_allow == ("10.0.0.0/8", "hooks.internal")
    assert configure({}, {"WINDLASS_WEBHOOK_ALLOW": "10.0.0.0/8, ::1"}).webhook_allow == ("10.0.0.0/8", "::1")


@pytest.mark.parametrize("value", ["10.0.0.0/99", ["x y"], [7], 7, "a,,b"])
def test_what_cannot_be_allowed_is_refused_when_the_app_is_made(value: object) -> None:
    with pytest.raises(InvalidOption, match="webhook_allow"):
        configure({"webhook_allow": value}, {})


def test_the_task_and_its_queue_are_there_in_every_namespace() -> None:
    app = Windlass("memory://", webhooks=True)
    app.queue("hot", namespace="hot")
    assert TASK in app.runnable
    assert TASK in app.within("hot").runnable
    assert QUEUE in app.queues
    assert QUEUE in app.within("hot").queues
    app.close()


def test_two_apps_of_one_namespace_may_both_have_webhooks(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/windlass.db"
    one, two = (Windlass(url, name=name, webhooks=True) for name in ("one", "two"))

    @one.task(name="a")
    def first() -> None: ...

    @two.task(name="b")
    def second() -> None: ...

    first.using(callback="https://example.com/").enqueue()
    second.using(callback="https://example.com/").enqueue()
    one.close()
    two.close()
