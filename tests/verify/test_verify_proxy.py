"""The proxy misbehaves exactly as it is told to, seen through real sockets."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from windlass.verify.network import Network

PATIENCE = 10.0
MOMENT = 0.3
"""Seconds in which what is held back would have come."""


class Echo:
    """A server that answers what it hears, in capitals, and remembers it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", self._listener.getsockname()[1])
        self.heard = b""
        self._came = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            while text := link.recv(1_000):
                with self._came:
                    self.heard += text
                    self._came.notify_all()
                link.sendall(text.upper())

    def hears(self, text: bytes) -> bool:
        with self._came:
            return self._came.wait_for(lambda: text in self.heard, PATIENCE)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # `accept` would keep it open
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def network(echo: Echo) -> Iterator[Network]:
    proxy = Network(echo.address, ["a", "b"])
    yield proxy
    proxy.close()


@contextlib.contextmanager
def connected(network: Network, door: str = "a") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", network.doors[door]), PATIENCE) as link:
        yield link


def asked(link: socket.socket, text: bytes) -> bytes:
    link.sendall(text)
    return link.recv(1_000)


def is_silent(link: socket.socket) -> bool:
    """Whether nothing comes for a moment, and the connection stays."""
    link.settimeout(MOMENT)
    try:
        link.recv(1_000)
    except TimeoutError:
        return True
    finally:
        link.settimeout(PATIENCE)
    return False


def test_carries_both_ways(network: Network) -> None:
    with connected(network) as link:
        assert asked(link, b"hello") == b"HELLO"


def test_slow_is_slow_and_keeps_order(network: Network) -> None:
    with connected(network) as link:
        network.weather(["a"], delay=0.2)
        begun = time.monotonic()
        assert asked(link, b"one") == b"ONE"
        assert time.monotonic() - begun >= 0.35, "there and back"


def test_a_partition_holds_and_then_delivers(network: Network) -> None:
    with connected(network) as link:
        network.weather(["a"], up="hold", down="hold")
        link.sendall(b"patience")
        assert is_silent(link)
        network.weather(["a"])
        assert link.recv(1_000) == b"PATIENCE"


def test_lost_replies_reach_the_store_and_nobody_hears(network: Network, echo: Echo) -> None:
    with connected(network) as link:
        assert asked(link, b"first") == b"FIRST"
        network.weather(["a"], down="lose")
        link.sendall(b"second")
        assert echo.hears(b"second")
        assert is_silent(link)
        network.weather(["a"])
        with pytest.raises(ConnectionResetError):  # bytes are missing: it cannot go on
            link.recv(1_000)


def test_lost_requests_do_not_reach_the_store(network: Network, echo: Echo) -> None:
    with connected(network) as link:
        network.weather(["a"], up="lose")
        link.sendall(b"nobody")
        assert is_silent(link)
    assert b"nobody" not in echo.heard


def test_half_open_is_silent_for_good_and_new_ones_are_well(network: Network) -> None:
    with connected(network) as link:
        assert asked(link, b"first") == b"FIRST"
        network.weather(["a"], half_open=True)
        link.sendall(b"second")
        assert is_silent(link)
        with connected(network) as late:
            late.sendall(b"third")
            assert is_silent(late)
        network.weather(["a"])
        assert is_silent(link)
        with connected(network) as fresh:
            assert asked(fresh, b"fourth") == b"FOURTH"


def test_reset_is_once_and_refuse_lasts(network: Network) -> None:
    with connected(network) as link:
        assert asked(link, b"first") == b"FIRST"
        network.weather(["a"], reset=True)
        with pytest.raises(ConnectionResetError):
            link.recv(1_000)
    network.weather(["a"], refuse=True)
    # The reset may come before or after what `connected` waits for.
    with pytest.raises(ConnectionResetError), connected(network) as link:
        link.recv(1_000)
    network.weather(["a"])
    with connected(network) as link:
        assert asked(link, b"second") == b"SECOND"


def test_doors_have_weather_of_their_own(network: Network) -> None:
    network.weather(["a"], refuse=True)
    with connected(network, "b") as link:
        assert asked(link, b"fine") == b"FINE"


def test_a_store_that_is_away_resets(network: Network, echo: Echo) -> None:
    echo.close()
    with pytest.raises(ConnectionResetError), connected(network) as link:
        link.recv(1_000)
