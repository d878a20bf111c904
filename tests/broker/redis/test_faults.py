"""Faults of the catalogue that name this store, on real servers."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from tests.broker.redis.fixtures import new_namespace, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.scenario import job_id
from tests.broker.redis.servers import Server, redis_binary, running, running_in, valkey_binary

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.keys import keys
from windlass.clock import ManualClock
from windlass.core.job import NewJob, Receipt, Refusal, Status
from windlass.core.lease import Ask, Lease
from windlass.core.limits import Rate
from windlass.core.outcome import Cause, CauseKind, Outcome, Verdict
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Change, Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import HOUR
from windlass.errors import StoreUnavailable

Binary = Callable[[], Path]
BOTH = pytest.mark.parametrize("binary", [redis_binary, valkey_binary], ids=["redis", "valkey"])


def client(server: Server) -> "redis.Redis":
    return redis.Redis(unix_socket_path=str(server.socket))


async def opened(server: Server, **settings: object) -> RedisBroker:
    broker = await RedisBroker.open(server.url, options=new_namespace(Options()))
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(**settings), app="a")  # type: ignore[arg-type]
    await broker.declare([queue])
    await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
    return broker


def jobs(first: int, count: int, payload: bytes = b"{}") -> list[NewJob]:
    return [NewJob(id=job_id(n), task="t", queue="q", payload=payload) for n in range(first, first + count)]


def ask(seq: int, count: int) -> Ask:
    return Ask(session="s", seq=seq, queues=("q",), slots=count, limit=count)


def done(leases: tuple[Lease, ...]) -> list[Settlement]:
    return [Settlement(job=one.job, fence=one.fence, outcome=Outcome.DONE, runtime=1) for one in leases]


def statuses(groups: "list[list[Receipt]] | object") -> set[Status]:
    return {receipt.status for group in groups for receipt in group}  # type: ignore[attr-defined]


def test_a_flush_of_scripts_is_survived(redis_server: Server) -> None:  # noqa: F811
    async def main() -> None:
        broker, server = await opened(redis_server), client(redis_server)
        server.script_flush()
        assert statuses(await broker.enqueue([jobs(1, 2)])) == {Status.CREATED}
        server.script_flush()
        leases = (await broker.claim(ask(1, 2))).leases
        server.script_flush()
        answers = (await broker.settle(done(leases))).answers
        assert [answer.verdict for answer in answers] == [Verdict.APPLIED] * 2
        server.script_flush()
        assert statuses(broker.blocking.enqueue([jobs(3, 1)])) == {Status.CREATED}
        server.close()
        await broker.close()

    asyncio.run(main())


@BOTH
def test_a_full_server_refuses_enqueue_and_drains(binary: Binary) -> None:
    async def main(server: Server) -> None:
        broker, admin = await opened(server, retention=0), client(server)
        assert statuses(await broker.enqueue([jobs(1, 200, b"x" * 1_000)])) == {Status.CREATED}
        admin.config_set("maxmemory", "1mb")  # less than an empty server needs
        receipts = (await broker.enqueue([jobs(1_000, 1)]))[0]
        assert [(one.status, one.refusal) for one in receipts] == [(Status.REFUSED, Refusal.STORE_FULL)]
        declaration = Declaration(subject=Subject(Kind.QUEUE, "r"), body=QueueSettings(), app="a")
        assert [answer.change for answer in await broker.declare([declaration])] == [Change.APPLIED]
        assert (await broker.beat([Beat(session="s")]))[0].alive
        left, seq = 200, 0
        while left:
            seq += 1
            leases = (await broker.claim(ask(seq, 50))).leases
            assert leases
            assert {a.verdict for a in (await broker.settle(done(leases))).answers} == {Verdict.APPLIED}
            left -= len(leases)
            await broker.sweep(limit=100)
        admin.config_set("maxmemory", "0")
        assert statuses(await broker.enqueue([jobs(1_000, 1)])) == {Status.CREATED}
        admin.close()
        await broker.close()

    with running(binary()) as server:
        asyncio.run(main(server))


def test_a_server_that_was_killed_is_found_again_with_everything_it_accepted(tmp_path: Path) -> None:
    settings = ("--appendonly", "yes", "--appendfsync", "always")

    async def main() -> None:
        with running_in(tmp_path, redis_binary(), *settings) as server:
            broker = await opened(server)
            await broker.enqueue([jobs(1, 10)])
            held = (await broker.claim(ask(1, 4))).leases
            server.process.kill()
            server.process.wait(10)
            with pytest.raises(StoreUnavailable):
                await broker.enqueue([jobs(20, 1)])
            with pytest.raises(StoreUnavailable):
                broker.blocking.enqueue([jobs(20, 1)])
        with running_in(tmp_path, redis_binary(), *settings):
            assert statuses(await broker.enqueue([jobs(20, 1)])) == {Status.CREATED}
            assert {a.verdict for a in (await broker.settle(done(held))).answers} == {Verdict.APPLIED}
            # The session is alive: nobody swept while the server was away.
            assert len((await broker.claim(ask(2, 100))).leases) == 7
            await broker.close()

    asyncio.run(main())


def test_a_connection_that_was_closed_meanwhile_is_opened_again(redis_server: Server) -> None:  # noqa: F811
    async def main() -> None:
        broker, admin = await opened(redis_server), client(redis_server)
        broker.blocking.enqueue([jobs(1, 1)])
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert statuses(await broker.enqueue([jobs(1, 1)])) == {Status.DUPLICATE}
        assert statuses(broker.blocking.enqueue([jobs(1, 1)])) == {Status.DUPLICATE}
        admin.close()
        await broker.close()

    asyncio.run(main())


def test_a_lost_ear_lets_everybody_look_for_themselves(redis_server: Server) -> None:  # noqa: F811
    async def main() -> None:
        broker, admin = await opened(redis_server), client(redis_server)
        while True:  # until no wake is left
            waiting = asyncio.create_task(broker.wait(["q"], 60))
            if not (await asyncio.wait({waiting}, timeout=0.2))[0]:
                break
        admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.wait_for(waiting, 5)
        again = asyncio.create_task(broker.wait(["q"], 60))
        await broker.enqueue([jobs(1, 1)])
        await asyncio.wait_for(again, 5)
        admin.close()
        await broker.close()

    asyncio.run(main())


def test_a_watch_outlives_its_connection(redis_server: Server) -> None:  # noqa: F811
    async def main() -> None:
        broker, admin = await opened(redis_server), client(redis_server)
        await broker.enqueue([jobs(1, 1)])
        watching = asyncio.create_task(broker.watch([job_id(1)], 60))
        assert not (await asyncio.wait({watching}, timeout=0.2))[0]
        admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        assert not (await asyncio.wait({watching}, timeout=0.2))[0]
        await broker.settle(done((await broker.claim(ask(1, 1))).leases))
        assert [found.job for found in await asyncio.wait_for(watching, 5)] == [job_id(1)]
        admin.close()
        await broker.close()

    asyncio.run(main())


def test_a_cancelled_call_does_not_harm_the_next(redis_server: Server) -> None:  # noqa: F811
    async def main() -> None:
        broker = await opened(redis_server)
        for number in range(1, 30):
            call = asyncio.create_task(broker.enqueue([jobs(number, 1)]))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait({call})
            assert {r.job for r in (await broker.enqueue([jobs(100 + number, 1)]))[0]} == {
                job_id(100 + number)
            }
        await broker.close()

    asyncio.run(main())


def test_a_server_that_hangs_is_given_up_and_found_again() -> None:
    async def main(server: Server) -> None:
        url = f"{server.url}?timeout=0.3"
        broker = await RedisBroker.open(url, options=new_namespace(Options()))
        await broker.declare([Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="a")])
        broker.blocking.enqueue([jobs(1, 1)])
        server.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable):
                await broker.enqueue([jobs(2, 1)])
            with pytest.raises(StoreUnavailable):
                broker.blocking.enqueue([jobs(3, 1)])
            with pytest.raises(StoreUnavailable):
                await broker.wait(["q"], 5)
            # Those who wait in line are told together, not one after the other.
            calls = (broker.enqueue([jobs(10 + n, 1)]) for n in range(20))
            async with asyncio.timeout(3):
                told = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, StoreUnavailable) for each in told)
        finally:
            server.process.send_signal(signal.SIGCONT)
        # What was sent before it hung may have arrived: the ids tell.
        await broker.enqueue([jobs(2, 1)])
        broker.blocking.enqueue([jobs(3, 1)])
        assert all(await broker.get([job_id(n) for n in (1, 2, 3)]))
        await broker.close()

    with running(redis_binary()) as server:
        asyncio.run(main(server))


def test_two_connections_and_one_round_trip_a_batch() -> None:
    async def main(server: Server) -> None:
        broker, admin = await opened(server), client(server)
        await asyncio.gather(*(broker.wait(["q"], 0.01) for _ in range(5)), broker.watch([job_id(1)], 0.01))
        await asyncio.gather(*(broker.enqueue([jobs(10 * n, 10)]) for n in range(1, 11)))
        mine = [one for one in admin.client_list() if one["name"] == "windlass"]
        assert len(mine) == 2
        claimed = (await broker.settle([], ask(1, 20))).claimed
        admin.config_resetstat()
        for seq in range(2, 4):
            assert claimed is not None
            claimed = (await broker.settle(done(claimed.leases), ask(seq, 20))).claimed
        stats = {name for name, one in admin.info("commandstats").items() if one["calls"]}
        assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] == 2
        assert not stats & {"cmdstat_eval", "cmdstat_script", "cmdstat_multi", "cmdstat_exec"}
        admin.close()
        await broker.close()

    with running(redis_binary()) as server:
        asyncio.run(main(server))


def test_a_child_of_a_fork_opens_its_own(redis_server: Server) -> None:  # noqa: F811
    async def main() -> None:
        broker = await opened(redis_server)
        broker.blocking.enqueue([jobs(1, 1)])
        child = os.fork()
        if child == 0:
            try:
                broker.blocking.enqueue([jobs(2, 1)])
                os._exit(0)
            except BaseException:  # noqa: BLE001 - nothing of the parent may run in the child
                os._exit(1)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert status == 0
        broker.blocking.enqueue([jobs(3, 1)])
        found = await broker.get([job_id(n) for n in (1, 2, 3)])
        assert all(found)
        await broker.close()

    asyncio.run(main())


def test_a_drained_namespace_keeps_settings_and_little_else(redis_server: Server) -> None:  # noqa: F811
    async def main() -> None:
        clock, options = ManualClock(), new_namespace(Options())
        broker, admin = (
            await RedisBroker.open(redis_server.url, clock=clock, options=options),
            client(redis_server),
        )
        body = QueueSettings(retention=0, dead_retention=0, result_ttl=0, lane_rate=Rate(1_000_000))
        await broker.declare([Declaration(subject=Subject(Kind.QUEUE, "q"), body=body, app="a")])

        def sizes() -> list[int]:
            return [
                admin.hlen(key) if place < 12 else admin.zcard(key)
                for place, key in enumerate(keys(options.namespace))
            ]

        before = sizes()
        await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
        for lane in ("", "a", "b"):
            batch = [
                NewJob(id=job_id(1_000 * (1 + len(lane)) + n), task="t", queue="q", lane=lane)
                for n in range(200)
            ]
            await broker.enqueue([batch])
        seq = 0
        while leases := (await broker.claim(ask(seq := seq + 1, 100))).leases:
            await broker.settle(done(leases))
        await broker.end_session("s", Cause(CauseKind.STOP))
        for _ in range(10):
            clock.advance(3 * HOUR)
            await broker.sweep(limit=1_000)
        after = sizes()
        # meta: numbers; set: the queue's state, a timed task, a wake; count: done jobs are counted for good
        allowed = {0: 1, 1: 3, 10: 1}
        grown = {
            place: new - old for place, (old, new) in enumerate(zip(before, after, strict=True)) if new != old
        }
        assert all(grown[place] <= allowed.get(place, 0) for place in grown), grown
        admin.close()
        await broker.close()

    asyncio.run(main())
