"""A TCP proxy that misbehaves on request: `python -m windlass.verify.proxy HOST PORT DOOR...`.

It is a process of its own, so that nothing the run does delays it. Each door is a port of the loopback; what
comes in goes to the store. The proxy first prints its doors as one JSON line (`{"a": 4711, ...}`), then reads
a `Weather` per line from its input and answers each with its door. It ends with its input.

    slow        every chunk waits for `delay` ± `jitter` seconds, in order
    hold        chunks of that direction wait until the weather changes: a partition that heals
    lose        chunks of that direction are swallowed; such a connection is reset when the weather changes
    half_open   the store's side is closed, the client's stays open and silent, for good; new ones as well
    refuse      every connection is reset, and so is each new one
    reset       everybody who is connected now is reset, once
"""

import asyncio
import contextlib
import random
import socket
import struct
import sys
from typing import Literal, TypeAlias

import msgspec

CHUNK = 65_536
Way: TypeAlias = Literal["pass", "hold", "lose"]
_LINGER = struct.pack("ii", 1, 0)
"""Close with a reset, not with a farewell."""


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """How a door behaves from now on."""

    door: str = ""
    delay: float = 0.0
    jitter: float = 0.0
    up: Way = "pass"
    """Towards the store."""
    down: Way = "pass"
    half_open: bool = False
    refuse: bool = False
    reset: bool = False


class Link:
    """One connection through a door."""

    def __init__(self, door: "Door", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._door = door
        self._client = (reader, writer)
        self._store: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._lost = False
        self._silent = False

    async def run(self) -> None:
        """Carry until one side ends, or for good if it became silent."""
        if self._door.weather.half_open:
            with contextlib.suppress(OSError):
                while await self._client[0].read(CHUNK):  # until it gives up by itself
                    pass
        else:
            try:
                self._store = await asyncio.open_connection(*self._door.store)
            except OSError:
                self.reset()
                return
            _at_once(self._store[1])
            up = self._pump(self._client[0], self._store[1], upwards=True)
            down = self._pump(self._store[0], self._client[1], upwards=False)
            self._pumps = [asyncio.create_task(up), asyncio.create_task(down)]
            await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
            if self._silent:
                await asyncio.wait(self._pumps[:1])  # it swallows what the client says until that gives up
        self.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, upwards: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(CHUNK):
                weather = self._door.weather
                if weather.delay:
                    await asyncio.sleep(max(0.0, random.uniform(-1, 1) * weather.jitter + weather.delay))  # noqa: S311
                while (way := self._way(upwards=upwards)) == "hold":
                    await self._door.changed.wait()
                if way == "lose" or self._silent:
                    self._lost = True
                    continue
                sink.write(chunk)
                await sink.drain()

    def _way(self, *, upwards: bool) -> Way:
        weather = self._door.weather
        return weather.up if upwards else weather.down

    def weather_has_changed(self, before: Weather) -> None:
        """Be reset where bytes are missing, or go silent."""
        now = self._door.weather
        swallowed = self._lost and "lose" in (before.up, before.down)
        if now.reset or now.refuse or (swallowed and "lose" not in (now.up, now.down)):
            self.reset()
        elif now.half_open:
            self._silent = True
            if self._store is not None:
                self._store[1].transport.abort()

    def reset(self) -> None:
        """Close with a reset."""
        for _, writer in filter(None, (self._client, self._store)):
            held: socket.socket | None = writer.get_extra_info("socket")
            if held is not None and held.fileno() >= 0:
                with contextlib.suppress(OSError):
                    held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
            writer.transport.abort()
        self._cancel()

    def close(self) -> None:
        """Close both sides."""
        for _, writer in filter(None, (self._client, self._store)):
            writer.close()
        self._cancel()

    def _cancel(self) -> None:
        for pump in self._pumps:
            pump.cancel()


class Door:
    """A port, its weather, and those who came through it."""

    def __init__(self, store: tuple[str, int]) -> None:
        self.store = store
        self.weather = Weather()
        self.changed = asyncio.Event()
        self._links: set[Link] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Listen on a free port; which."""
        self._server = await asyncio.start_server(self._come, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Reset everybody, and listen no more."""
        self.set(Weather(refuse=True, reset=True))
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def set(self, weather: Weather) -> None:
        """Change the weather, for those who are here, too."""
        before, self.weather = self.weather, weather
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        for link in list(self._links):
            link.weather_has_changed(before)

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer)
        _at_once(writer)
        if self.weather.refuse:
            link.reset()
            return
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)


def _at_once(writer: asyncio.StreamWriter) -> None:
    held: socket.socket | None = writer.get_extra_info("socket")
    if held is not None:
        held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def serve(host: str, port: int, names: list[str]) -> None:
    """Serve until the input ends."""
    doors = {name: Door((host, port)) for name in names}
    ports = {name: await door.open() for name, door in doors.items()}
    _print(msgspec.json.encode(ports))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        weather = msgspec.json.decode(line, type=Weather)
        doors[weather.door].set(weather)
        _print(msgspec.json.encode(weather.door))


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Read the arguments."""
    from windlass.verify.processes import end_with_parent  # noqa: PLC0415 - for this program alone

    end_with_parent()
    host, port, *names = sys.argv[1:]
    asyncio.run(serve(host, int(port), names))


if __name__ == "__main__":
    main()
