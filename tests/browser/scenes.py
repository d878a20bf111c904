"""What there is to see: jobs in every state, lanes at their limits, dead letters, a flow that is stuck."""

from uuid import uuid4

from tests.browser.stage import Stage, eventually

FLOW = """
from shop import app, check, collect, count, notify
from windlass import chain, group
flow = chain(collect.call("orders"), group(count.call(), check.call({fail}), count.call()), notify.call())
flow.enqueue(flow="{name}")
app.close()
"""


def a_flow(stage: Stage, name: str, *, fail: bool = False) -> str:
    """A flow of five jobs; with `fail`, one of its steps dies."""
    stage.run(FLOW.format(name=name, fail=fail))
    return name


def a_day(stage: Stage) -> None:
    """Enough of everything for a picture."""
    stage.enqueue_many(
        [
            {
                "task": "send",
                "payload": {"to": f"u{n}@example.com", "subject": "Your order"},
                "lane": lane,
                "tags": ["order"],
            }
            for n in range(60)
            for lane in ("acme", "globex", "initech")
        ]
    )
    stage.enqueue_many(
        [{"task": "resize", "payload": {"name": f"photo-{n}.jpg", "width": 640}} for n in range(40)]
    )
    stage.enqueue_many([{"task": "report", "payload": {"kind": "hourly"}} for _ in range(30)])
    stage.enqueue_many([{"task": "charge", "payload": {"order": 4_000 + n}} for n in range(12)])
    stage.enqueue_many([{"task": "parse", "payload": {"text": "???"}} for _ in range(5)])
    stage.enqueue_many([{"task": "flaky", "payload": {"number": n}} for n in range(3)])
    stage.enqueue_many([{"task": "shelve", "payload": {"box": f"box {n}"}} for n in range(7)])
    stage.enqueue_many([{"task": "report", "payload": {"kind": "later"}, "delay": 3_600} for _ in range(4)])
    stage.enqueue("film", {"name": "harbour.mov"})
    stage.enqueue_many(
        [
            {"task": "deliver", "payload": {"seconds": 600}, "lane": lane}
            for lane in ("acme", "globex")
            for _ in range(4)
        ]
    )
    a_flow(stage, "order-42")
    a_flow(stage, "order-43", fail=True)
    eventually(lambda: stage.get("/v1/overview")["jobs"]["dead"] >= 18)
    eventually(lambda: stage.get("/v1/overview")["jobs"]["done"] >= 130)


DEAD = """
import asyncio
from calm import app, send
from windlass.core.lease import Ask
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement

KINDS = [Error(type=kind, message="no good", fingerprint=kind) for kind in {kinds!r}]
COUNT = {count} * len(KINDS)

async def main():
    await app.aenqueue_many(send.call(str(number)) for number in range(COUNT))
    broker = await app.broker()
    info = SessionInfo(host="here", queues=("mail",), slots=COUNT)
    await broker.beat([Beat(session="{session}", open=info)])
    for seq in range(1, -(-COUNT // 999) + 1):
        ask = Ask(session="{session}", seq=seq, queues=("mail",), slots=999, limit=999)
        leases = (await broker.claim(ask)).leases
        await broker.settle([
            Settlement(job=each.job, fence=each.fence, outcome=Outcome.DEAD, error=KINDS[number % len(KINDS)])
            for number, each in enumerate(leases)
        ])
    await app.aclose()

asyncio.run(main())
"""


def dead_letters(stage: Stage, count: int, *kinds: str) -> None:
    """So many dead letters of each kind, in the calm application; no worker has to be there."""
    stage.run(DEAD.format(count=count, kinds=kinds, session=uuid4().hex))
