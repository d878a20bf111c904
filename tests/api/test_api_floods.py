"""Floods: of requests, guessed keys, bodies and long polls, and who is not to suffer from them."""

import asyncio
from collections.abc import AsyncIterator

import httpx
from tests.api.house import House, until

from windlass.api.context import SERVER_STATE
from windlass.api.server_state import ServerState
from windlass.api.yielding import ITEMS_PER_YIELD


def test_a_flood_by_one_key_is_429_and_others_are_not_slowed(house: House) -> None:
    async def story() -> None:
        loud, quiet = await house.key("read"), await house.key("read")
        server = house.server(rate=5)
        async with house.open(loud, server=server) as client:
            codes = [(await client.get("/v1/session")).status_code for _ in range(10)]
            assert codes[:5] == [200] * 5
            assert 429 in codes
            answer = await _refused(client)
            assert int(answer.headers["retry-after"]) >= 1
            own = {"authorization": f"Bearer {quiet}"}
            assert (await client.get("/v1/session", headers=own)).status_code == 200

    house.run(story)


async def _refused(client: httpx.AsyncClient) -> httpx.Response:
    while (answer := await client.get("/v1/session")).status_code != 429:
        pass
    return answer


def test_guessing_keys_is_slowed_down(house: House) -> None:
    async def story() -> None:
        await house.key("read")
        async with house.open("windlass_abc_def") as client:
            codes = {(await client.get("/v1/session")).status_code for _ in range(80)}
            assert codes == {401, 429}
        async with house.open() as client:
            answers = [await client.post("/v1/session", json={"key": "windlass_abc_def"}) for _ in range(80)]
            assert {answer.status_code for answer in answers} == {401, 429}

    house.run(story)


def test_a_valid_key_is_let_in_although_others_at_its_address_guess(house: House) -> None:
    async def story() -> None:
        key = await house.key("read")
        server = house.server()
        async with house.open("windlass_abc_def", server=server) as client:
            while (await client.get("/v1/session")).status_code != 429:
                pass
            own = {"authorization": f"Bearer {key}"}
            assert (await client.get("/v1/session", headers=own)).status_code == 200
            assert (await client.post("/v1/session", json={"key": key}, headers=own)).status_code == 204

    house.run(story)


def test_a_login_that_is_over_is_no_guess_at_a_key(house: House) -> None:
    async def story() -> None:
        key = await house.key("operate")
        wrong = {"authorization": "Bearer windlass_wrong"}
        over = {"cookie": "windlass_session=over", "origin": "http://localhost"}
        async with house.open("") as client:
            while (await client.get("/v1/session", headers=wrong)).status_code != 429:
                pass
            assert (await client.get("/v1/session", headers=over)).status_code == 401
            login = await client.post("/v1/session", json={"key": key}, headers=over)
            assert login.status_code == 204

    house.run(story)


def test_bodies_have_limits(house: House) -> None:
    async def story() -> None:
        async with house.open(body_timeout=0.2) as client:
            json = {"content-type": "application/json"}
            large = b'{"type": "add", "payload": {"a": "' + b"x" * 2_000_000 + b'"}}'
            answer = await client.post("/enqueue", content=large, headers=json)
            assert answer.status_code == 413

            async def pieces() -> AsyncIterator[bytes]:
                for _ in range(40):
                    yield b"x" * 65_536

            assert (await client.post("/enqueue", content=pieces(), headers=json)).status_code == 413
            deep = b'{"type": "add", "payload": {"a": ' + b"[" * 200 + b"]" * 200 + b"}}"
            answer = await client.post("/enqueue", content=deep, headers=json)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["field"] == "payload"
            deeper = b'{"type": "add", "payload": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
            answer = await client.post("/enqueue", content=deeper, headers=json)
            assert answer.status_code in (400, 422)

            async def slow() -> AsyncIterator[bytes]:
                yield b"{"
                await asyncio.Event().wait()

            assert (await client.post("/enqueue", content=slow(), headers=json)).status_code == 408
            plain = await client.post("/enqueue", content=b"{}", headers={"content-type": "text/plain"})
            assert plain.status_code == 415

    house.run(story)


def test_a_long_field_is_not_repeated_whole(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        async with house.open() as client:
            answer = await client.post("/enqueue", json={"type": "add", "x" * 100_000: 1})
            assert answer.status_code == 400
            assert len(answer.content) < 5_000
            assert answer.json()["errors"][0]["field"].startswith("xxx")

    house.run(story)


def test_others_have_their_turn_while_a_long_list_is_read(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        async with house.open() as client:

            async def turns_during(count: int) -> int:
                job = {"task": "add", "payload": {"a": 1}, "lane": "acme"}
                asked = asyncio.create_task(client.post("/v1/jobs/batch", json={"jobs": [job] * count}))
                turns = 0
                while not asked.done():
                    await asyncio.sleep(0)
                    turns += 1
                assert (await asked).status_code == 201
                return turns

            await turns_during(1)  # the first reads keys and secrets, too
            few = await turns_during(1)
            assert await turns_during(1_000) - few >= 1_000 // ITEMS_PER_YIELD // 2

    house.run(story)


def test_too_many_long_polls_are_refused(house: House) -> None:
    async def story() -> None:
        async with house.open(waiting=4) as client:
            job = (
                await client.post("/v1/jobs", json={"task": "add", "payload": {"a": 1}, "delay": 60})
            ).json()

            async def waited(seconds: float) -> int:
                answer = await client.get(f"/v1/jobs/{job['id']}", params={"wait": seconds})
                return answer.status_code

            codes = await asyncio.gather(*(waited(0.3) for _ in range(3)))
            assert sorted(codes) == [200, 200, 429]
            assert await waited(0.01) == 200, "the places are free again"

    house.run(story)


def test_who_takes_every_place_to_wait_leaves_some_to_the_others(house: House) -> None:
    async def story() -> None:
        loud, quiet = await house.key("read", "enqueue"), await house.key("read")
        server = house.server(waiting=8)
        running: ServerState = server.state[SERVER_STATE]
        async with house.open(loud, server=server) as client:
            body = {"task": "add", "payload": {"a": 1}, "delay": 60}
            job = (await client.post("/v1/jobs", json=body)).json()["id"]

            async def waited(key: str) -> int:
                own = {"authorization": f"Bearer {key}"}
                answer = await client.get(f"/v1/jobs/{job}", params={"wait": 30}, headers=own)
                return answer.status_code

            async def are_there(count: int) -> bool:
                return running.long_polls.total() == count

            async def are_refused() -> bool:
                return sum(each.done() for each in flood) == 16

            flood = [asyncio.create_task(waited(loud)) for _ in range(20)]
            await until(are_refused)
            assert await are_there(4)
            other = asyncio.create_task(waited(quiet))
            await until(lambda: are_there(5))
            running.stopping.set()
            codes = [await each for each in flood]
            assert (codes.count(200), codes.count(429)) == (4, 16)
            assert await other == 200
            assert not running.long_polls

    house.run(story)
