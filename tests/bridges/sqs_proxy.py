"""Stands between clients and a stand-in for SQS, and does what SQS may do: it loses requests and answers,
does what it was asked twice, is slow, hands messages out in another order, and again after they were deleted.
"""

import asyncio
import random
import threading
from collections import Counter
from typing import Any, NoReturn, Self

import aiohttp
import msgspec
from aiohttp import web

_TARGET = "X-Amz-Target"
_KEPT = 50
"""Messages of which it may hand out one more copy."""


class Mischief:
    """A proxy on a thread of its own. `share`: how often each kind of mischief happens."""

    def __init__(self, endpoint: str, *, seed: int, share: float = 0.08) -> None:
        self._target = endpoint
        self._chance = random.Random(seed)
        self._share = share
        self._seen: list[dict[str, Any]] = []
        self.done: Counter[str] = Counter()
        self.endpoint = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._run()])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30), "the proxy did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        app = web.Application(client_max_size=1 << 22)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert runner.addresses
        self.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as self._session:
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self._strikes("late"):
            await asyncio.sleep(self._chance.random() / 5)
        if self._strikes("lost request"):
            _hang_up(request)
        status, answer = await self._asked(request, body)
        if self._strikes("asked twice"):
            status, answer = await self._asked(request, body)
        if self._strikes("lost answer"):
            _hang_up(request)
        if request.headers.get(_TARGET, "").endswith(".ReceiveMessage") and status == 200:
            answer = self._shuffled(answer)
        return web.Response(status=status, body=answer, content_type="application/x-amz-json-1.0")

    async def _asked(self, request: web.Request, body: bytes) -> tuple[int, bytes]:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in ("host", "content-length")
        }
        async with self._session.post(self._target + request.path_qs, data=body, headers=headers) as told:
            return told.status, await told.read()

    def _shuffled(self, answer: bytes) -> bytes:
        told: dict[str, Any] = msgspec.json.decode(answer)
        messages: list[dict[str, Any]] = told.get("Messages", [])
        if self._seen and len(messages) < 10 and self._strikes("once more"):
            messages = [*messages, self._chance.choice(self._seen)]
        if len(messages) > 1 and self._strikes("another order"):
            self._chance.shuffle(messages)
        self._seen = [*self._seen, *messages][-_KEPT:]
        return msgspec.json.encode({**told, "Messages": messages} if messages else told)

    def _strikes(self, what: str) -> bool:
        struck = self._chance.random() < self._share
        self.done[what] += struck
        return struck


def _hang_up(request: web.Request) -> NoReturn:
    if request.transport is not None:
        request.transport.abort()
    raise web.HTTPBadGateway
