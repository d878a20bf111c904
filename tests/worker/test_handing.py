"""Blocking code between the turns of a loop, and what comes in between."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.worker.failure import RunTimedOut
from windlass.worker.handing import Stage, called_beside, hand_over


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def ended(stage: Stage, interruption: Callable[[], None]) -> tuple[list[str], BaseException | None]:
    """What happens when this comes after blocking code was asked for, and before it is called."""
    words: list[str] = []
    raised: list[BaseException] = []

    async def work() -> None:
        hand_over.set(stage)
        await asyncio.sleep(0)  # by now the stage waits for this turn to end
        asyncio.get_running_loop().call_soon(interruption)
        run: Any = SimpleNamespace(stop=None)
        try:
            await called_beside(run, lambda: words.append("called"))
        except BaseException as error:
            words.append(f"heard {type(error).__name__}")
            raise

    def play() -> None:
        try:
            stage.run(work())
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            raised.append(error)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits for an answer that nobody gives"
    return words, raised[0] if raised else None


def test_a_timeout_before_the_code_was_called_keeps_it_from_being_called(stage: Stage) -> None:
    words, error = ended(stage, lambda: stage.interrupt(RunTimedOut()))
    assert words == ["heard RunTimedOut"]
    assert isinstance(error, RunTimedOut)
    assert stage.run(asyncio.sleep(0, "the next job")) == "the next job"


def test_ctrl_c_before_the_code_was_called_leaves_nobody_waiting(stage: Stage) -> None:
    def interrupt() -> None:
        """As the runner of a loop does it."""
        for each in asyncio.all_tasks():
            if "_next_turn" in repr(each):
                each.cancel()

    words, error = ended(stage, interrupt)
    assert words == ["heard CancelledError"]
    assert isinstance(error, asyncio.CancelledError)


def test_a_timeout_outside_of_a_loop_is_raised_where_the_code_is(stage: Stage) -> None:
    with pytest.raises(RunTimedOut):
        stage.interrupt(RunTimedOut())
