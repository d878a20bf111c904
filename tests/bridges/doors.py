"""A door between an adapter and its server, which tests shut."""

from windlass.verify.proxy import Door, Weather


class Doored:
    """A door between the adapter and the server."""

    def __init__(self, port: int) -> None:
        self._door = Door(("127.0.0.1", port))
        self._port: int | None = None

    async def host(self) -> str:
        """Where it is: host and port."""
        if self._port is None:
            self._port = await self._door.open()
        return f"127.0.0.1:{self._port}"

    def shut(self) -> None:
        """Everybody who is connected is reset, and whoever comes."""
        self._door.set(Weather(refuse=True, reset=True))

    def open(self) -> None:
        """Let everybody through."""
        self._door.set(Weather())

    async def close(self) -> None:
        """Nobody comes any more."""
        if self._port is not None:
            await self._door.close()
