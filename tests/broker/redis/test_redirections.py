"""Nodes that send a caller elsewhere, over both transports; the nodes are sockets that say one thing."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from windlass.broker.redis.blocking import BlockingWire
from windlass.broker.redis.connections import named
from windlass.broker.redis.conversation import converse
from windlass.broker.redis.url import read_url
from windlass.broker.redis.verbs import ScriptCall
from windlass.broker.redis.wire import Wire
from windlass.errors import StoreError, StoreUnavailable


class Node:
    """Answers every script alike."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._links.append(link)
            threading.Thread(target=self._talk, args=(link,), daemon=True).start()

    def _talk(self, link: socket.socket) -> None:
        try:
            while said := link.recv(65_536):
                for command in said.split(b"*")[1:]:
                    link.sendall(self._answer() if b"EVAL" in command else b"+OK\r\n")
        except OSError:
            pass

    def die(self) -> None:
        for each in (self._listener, *self._links):
            with each:
                each.shutdown(socket.SHUT_RDWR)


Hold = Callable[[], int]


def _blocking(url: str) -> Iterator[Hold]:
    wire = BlockingWire(read_url(url), b"k")
    yield lambda: wire.hold(_talk())
    wire.close()


def _on_loop(url: str) -> Iterator[Hold]:
    with asyncio.Runner() as runner:

        async def made() -> Wire:
            return Wire(read_url(url), b"k")

        wire = runner.run(made())
        yield lambda: runner.run(wire.hold(_talk()))
        runner.run(wire.close())


def _talk() -> Any:
    return converse(ScriptCall("counts", (), int), (b"k",), b"", 0, 5.0)


BOTH = pytest.mark.parametrize("transport", [_blocking, _on_loop])


@BOTH
def test_after_the_end_of_a_node_that_was_named_the_url_counts_again(
    transport: Callable[[str], Iterator[Hold]],
) -> None:
    second, third = Node(lambda: b":2\r\n"), Node(lambda: b":3\r\n")
    where = second.port
    first = Node(lambda: b"-MOVED 7 127.0.0.1:%d\r\n" % where)
    for hold in transport(f"redis://127.0.0.1:{first.port}"):
        assert [hold(), hold()] == [2, 2]
        second.die()
        where = third.port
        with pytest.raises(StoreUnavailable):
            hold()
        assert [hold(), hold()] == [3, 3]


@BOTH
@pytest.mark.parametrize("how", [b"MOVED", b"ASK"])
def test_a_redirection_that_names_no_host_is_to_another_port(
    transport: Callable[[str], Iterator[Hold]], how: bytes
) -> None:
    second = Node(lambda: b":2\r\n")
    first = Node(lambda: b"-%b 7 :%d\r\n" % (how, second.port))
    for hold in transport(f"redis://127.0.0.1:{first.port}"):
        assert [hold(), hold()] == [2, 2]


def test_from_a_socket_nobody_is_sent_on() -> None:
    with pytest.raises(StoreError, match=r"redis\+cluster://"):
        named(read_url("unix:///somewhere"), None, ("127.0.0.1", 7000))
