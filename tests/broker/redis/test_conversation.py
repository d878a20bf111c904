"""What a call says when a server sends it elsewhere; the servers' part is played here."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis import exceptions

from windlass.broker.redis.conversation import TRIES, ConnectTo, Pause, Send, Step, converse
from windlass.broker.redis.verbs import ScriptCall
from windlass.errors import StoreUnavailable

HERE, THERE = ("127.0.0.1", 7000), ("127.0.0.1", 7001)


def held(answers: Sequence[Any], script: str = "counts", wait: int = 0) -> tuple[list[Step], Any]:
    """Hold the conversation of one call, each question answered by the next; what was said, and the end."""
    talk = converse(ScriptCall(script, (), str), (b"k",), b"", wait, 5.0)
    said: list[Step] = []
    given = iter(answers)
    answer: Any = None
    while True:
        try:
            step = talk.send(answer)
        except StopIteration as stop:
            return said, stop.value
        said.append(step)
        answer = next(given) if isinstance(step, Send) else None


def moved(to: tuple[str, int]) -> exceptions.MovedError:
    return exceptions.MovedError(f"7 {to[0]}:{to[1]}")


def asked(to: tuple[str, int]) -> exceptions.AskError:
    return exceptions.AskError(f"7 {to[0]}:{to[1]}")


def test_a_slot_that_has_moved_is_followed_for_good() -> None:
    (first, go, second), end = held([moved(THERE), 1])
    assert isinstance(first, Send)
    assert go == ConnectTo(THERE)
    assert isinstance(second, Send)
    assert (second.to, len(second.commands), end) == (None, 1, "1"), "asked as ever, of another server"


def test_a_slot_that_is_moving_is_followed_for_once() -> None:
    (first, second), end = held([asked(THERE), 1])
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert (second.to, second.commands[0], end) == (THERE, (b"ASKING",), "1")


def test_what_replicas_have_to_confirm_is_written_where_it_stays() -> None:
    said, end = held([asked(THERE), asked(THERE), moved(THERE), 1, 2], "enqueue", wait=2)
    assert [type(step) for step in said] == [Send, Pause, Send, Pause, Send, Pause, ConnectTo, Send, Send]
    assert {step.to for step in said if isinstance(step, Send)} == {None}
    assert isinstance(said[-1], Send)
    assert said[-1].commands[0][:2] == (b"WAIT", 2)
    assert end == "1"


@pytest.mark.parametrize("sends_on", [moved, asked])
def test_nodes_that_disagree_for_a_moment_are_given_it(sends_on: Any) -> None:
    circle = [sends_on(THERE if turn % 2 else HERE) for turn in range(TRIES - 1)]
    said, end = held([*circle, 1])
    assert end == "1"
    assert 2.0 < sum(step.seconds for step in said if isinstance(step, Pause)) < 5.0


def test_a_node_that_has_left_its_cluster_is_left() -> None:
    said, end = held([exceptions.ClusterDownError("CLUSTERDOWN"), 1])
    assert [type(step) for step in said] == [Send, Pause, ConnectTo, Send]
    assert said[2] == ConnectTo(None)
    assert end == "1"


def test_nodes_that_go_on_disagreeing_are_named() -> None:
    with pytest.raises(StoreUnavailable, match="redirect to each other"):
        held([moved(THERE)] * TRIES)
