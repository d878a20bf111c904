"""Bodies as they arrive, word by word."""

import asyncio
from typing import Any

import pytest

from windlass.api.incoming_body import IncomingBody
from windlass.api.problems import Refusal

LEFT = {"type": "http.disconnect"}


def word(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


class Connection:
    """Says some words, then nothing."""

    def __init__(self, *words: dict[str, Any]) -> None:
        self.words = list(words)

    async def __call__(self) -> Any:
        return self.words.pop(0) if self.words else await asyncio.Event().wait()


def arriving(connection: Connection, length: bytes = b"0", *, most: int = 100) -> IncomingBody:
    return IncomingBody(connection, length, most=most, within=0.05)


def test_who_listens_behind_a_whole_body_waits_for_as_long_as_it_takes() -> None:
    async def story() -> None:
        receive = arriving(Connection(word(b"abcd", more=False)), b"4")
        await receive()
        with pytest.raises(TimeoutError):  # of this test: the body is here, so its time is not over
            await asyncio.wait_for(receive(), 0.2)

    asyncio.run(story())


@pytest.mark.parametrize("length", [b"0", b"9", b"x", b"-4"])
def test_a_body_of_another_length_than_announced_goes_on_to_its_end(length: bytes) -> None:
    async def story() -> None:
        receive = arriving(Connection(word(b"abcd"), word(b"ef", more=False), LEFT), length)
        assert await receive() == word(b"abcd")
        assert await receive() == word(b"ef", more=False)
        assert await receive() == LEFT

    asyncio.run(story())


def test_an_empty_word_before_a_body_without_a_length_is_not_its_end() -> None:
    async def story() -> None:
        receive = arriving(Connection(word(b""), word(b"ef", more=False)))
        assert await receive() == word(b"")
        assert await receive() == word(b"ef", more=False)

    asyncio.run(story())


def test_a_body_that_stops_coming_is_408() -> None:
    async def story() -> None:
        receive = arriving(Connection(word(b"ab")), b"4")
        assert await receive() == word(b"ab")
        with pytest.raises(Refusal) as refused:
            await receive()
        assert refused.value.status == 408

    asyncio.run(story())


@pytest.mark.parametrize("length", [b"101", b"1" * 16, b"9" * 5_000])
def test_a_body_that_is_announced_to_be_too_large_is_413(length: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        arriving(Connection(), length)
    assert refused.value.status == 413


def test_a_body_that_trickles_is_408_although_each_word_comes_in_time() -> None:
    class Trickle(Connection):
        async def __call__(self) -> Any:
            await asyncio.sleep(0.02)
            return word(b"a")

    async def story() -> None:
        receive = arriving(Trickle(), b"90")

        async def twenty() -> None:
            for _ in range(20):
                await receive()

        with pytest.raises(Refusal) as refused:
            await twenty()
        assert refused.value.status == 408

    asyncio.run(story())


def test_a_body_that_turns_out_to_be_too_large_is_413() -> None:
    async def story() -> None:
        receive = arriving(Connection(word(b"x" * 60), word(b"x" * 60)), b"10")
        await receive()
        with pytest.raises(Refusal) as refused:
            await receive()
        assert refused.value.status == 413

    asyncio.run(story())
