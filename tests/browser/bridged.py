"""An application with intakes and a relay, and what the processes that run them write into the store."""

import msgspec
from msgspec.structs import replace

from windlass import Windlass
from windlass.core.intake import IntakeStatus, PartitionStatus, runs_intake, status_of
from windlass.core.outcome import Cause, CauseKind
from windlass.core.relay import RelayReading, reading_of
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Subject
from windlass.core.take import Source, Take
from windlass.core.units import SECOND

app = Windlass(name="bridged")


@app.task(queue="shipping")
def ship(order: int) -> None:
    """Send a parcel."""


app.intake("kafka://me:hunter2@localhost:1/orders", task=ship, lane="headers.tenant", priority=5)
app.intake("amqp://localhost:1/returns", task=ship)
app.relay("amqp://localhost:1/deaths?key=jobs.{queue}.{state}", on=["dead", "cancelled"])

STOPPED = "orders/2 is another log than the one that was taken so far: it was deleted and made anew"


async def scene() -> None:
    """Two processes read; one partition has stopped, another was left by a process that is gone."""
    broker = await app.broker()
    for number, names in enumerate((("orders", "returns"), ("orders",))):
        info = SessionInfo(host=f"box-{number}", pid=4_700 + number, queues=tuple(map(runs_intake, names)))
        await broker.beat([Beat(session=f"reader-{number}", open=info)])
    for partition, at in (("0", "1042"), ("1", "977"), ("2", "1001")):
        await broker.take(Take(source=Source(f"orders/{partition}", "k3Xf"), expect=None, then=at))
    now = (await broker.schedules(limit=1)).now
    one = PartitionStatus(owner="reader-0", host="box-0", pid=4_700, as_of=now)
    other = PartitionStatus(owner="reader-1", host="box-1", pid=4_701, as_of=now)
    orders = {
        "0": replace(one, lag=12_408, taken=1_042, rate=212.4, place="0/1041"),
        "1": replace(other, lag=3, taken=977, dead=4, rate=9.5, place="1/976"),
        "2": replace(other, lag=None, taken=1_001, stopped=True, error=STOPPED),
    }
    warning = 'topic "orders" has one replica: a broker that is lost takes messages with it; set three'
    returns = {"reader-0": replace(one, lag=40, taken=7, rate=0.5)}
    reading = RelayReading(
        cursor="1", holder="w", until=now + 60 * SECOND, as_of=now, host="box-1", pid=4_701,
        sent=10_400, gaps=1, behind=2 * SECOND,
    )  # fmt: skip
    await _write(status_of("orders"), IntakeStatus(partitions=orders, warnings=(warning,)))
    await _write(status_of("returns"), IntakeStatus(partitions=returns))
    await _write(reading_of("deaths"), reading)
    await app.aclose()


async def _write(subject: Subject, body: object) -> None:
    broker = await app.broker()
    documents = await broker.documents(subject.kind, None, 1_000)
    version = next((each.version for each in documents if each.subject == subject), 0)
    await broker.override(subject, msgspec.json.encode(body), version)


async def leave() -> None:
    """The processes end."""
    broker = await app.broker()
    for number in range(2):
        await broker.end_session(f"reader-{number}", Cause(CauseKind.STOP))
    await app.aclose()
