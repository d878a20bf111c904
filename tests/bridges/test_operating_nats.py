"""Moving offsets and examining, with a real message broker: a stream of NATS and its work queue."""

from typing import Any

import pytest
from tests.bridges.nats_server import in_loop, jetstream, make_stream, put

from windlass import Windlass
from windlass.admin.doctor_bridges import examine_bridges
from windlass.admin.findings import Level
from windlass.admin.service import Service
from windlass.errors import BridgeRefused, InvalidOption
from windlass.verify.brokers.nats import OwnNats


def app_of(server: OwnNats, stream: str, options: str = "") -> Windlass:
    app = Windlass("memory://")

    @app.task
    def ship(n: int) -> int:
        return n

    app.intake(f"{server.url()}/{stream}{options}", task=ship, name="orders")
    return app


async def texts(app: Windlass, level: Level) -> list[str]:
    return [each.text async for each in examine_bridges(app, await app.broker()) if each.level is level]


def test_an_offset_is_moved_to_the_ends_to_a_number_and_to_a_stream_made_anew(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        await put(nats_server, f"{stream}.a", [b'{"n": 1}'] * 5)
        app = app_of(nats_server, stream)
        intakes = (await Service.of(app)).intakes
        places: dict[str, Any] = {}
        for to in ("begin", "3", "end"):
            moved = await intakes.move("orders", stream, to)
            places[to] = moved.offset
            assert moved.moved
        assert len(set(places.values())) == 3
        with pytest.raises(InvalidOption, match="is no offset"):
            await intakes.move("orders", stream, "soon")
        with pytest.raises(InvalidOption, match=f'no partition "other"; partitions: {stream}'):
            await intakes.move("orders", "other", "begin")
        async with jetstream(nats_server) as js:
            await js.delete_stream(stream)
        with pytest.raises(BridgeRefused):
            await intakes.move("orders", stream, "begin")
        await make_stream(nats_server, stream)
        (before,) = (await intakes.one("orders")).partitions
        moved = await intakes.move("orders", stream, "begin", expect=places["end"])
        assert moved.moved
        assert moved.identity != before.identity
        await app.aclose()

    in_loop(story())


def test_a_work_queue_has_nowhere_to_move_and_doctor_asks_it(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server, retention="workqueue")
        await put(nats_server, f"{stream}.a", [b'{"n": 1}'])
        app = app_of(nats_server, stream, "?consumer=c")
        with pytest.raises(InvalidOption, match="is a queue"):
            await (await Service.of(app)).intakes.move("orders", stream, "begin")
        (answers,) = await texts(app, Level.OK)
        assert answers.endswith(f"/{stream} answers")
        async with jetstream(nats_server) as js:
            assert (await js.stream_info(stream)).state.messages == 1  # asking has taken nothing
        await app.aclose()

    in_loop(story())


def test_doctor_tells_what_the_settings_of_a_stream_do_not_promise(nats_server: OwnNats) -> None:
    async def story() -> None:
        app = app_of(nats_server, await make_stream(nats_server))
        warnings = await texts(app, Level.WARNING)
        assert 'intake "orders": no process runs it' in warnings
        assert any("it has one replica" in text for text in warnings)
        missing = app_of(nats_server, "nowhere")
        assert any('there is no stream "nowhere"' in text for text in await texts(missing, Level.WARNING))
        await app.aclose()
        await missing.aclose()

    in_loop(story())
