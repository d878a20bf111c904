"""Read by the type checker, never run: what the types of the public face promise."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, assert_type

import attrs
from annotated_types import Gt
from pydantic import BaseModel, Field

from windlass import (
    Call,
    Cancelled,
    Depends,
    Job,
    OutgoingJob,
    Proceed,
    Rate,
    RunningJob,
    Unique,
    Windlass,
    current,
    injected,
)
from windlass.testing import override


@contextlib.asynccontextmanager
async def lifespan(_app: Windlass) -> AsyncGenerator[dict[str, int]]:
    yield {"pool": 1}


@contextlib.contextmanager
def plain_lifespan() -> Generator[None]:
    yield


app = Windlass("memory://", lifespan=lifespan)
Windlass("memory://", lifespan=plain_lifespan)


@app.task
def add(left: int, right: int = 0) -> int:
    return left + right


@app.task(queue="mail", timeout=60)
async def send(to: str, *, subject: str) -> str:
    return to + subject


assert_type(add(1), int)
plain = send("a", subject="b")
_ = assert_type(plain, Coroutine[Any, Any, str])
assert_type(add.enqueue(1, right=2), Job[int])
assert_type(add.enqueue(1).result(timeout=1), int)
assert_type(send.enqueue("a", subject="b").result(), str)
assert_type(add.using(delay="5m", priority=3).enqueue(1).result(), int)
assert_type(add.call(1), Call[int])
assert_type(add.call(1).using(lane="x"), Call[int])
assert_type(app.enqueue_many([add.call(1)]), list[Job[int]])
assert_type(app.enqueue_many([add.call(1), send.call("", subject="")]), list[Job[int | str]])  # mypy
assert_type(add.using(lane="x").enqueue_many([add.call(1)]), list[Job[int]])
assert_type(add.handle("id"), Job[int])
assert_type(app.external("resize", queue="images").enqueue(1, width=2), Job[Any])
app.schedule("nightly", add.call(1), cron="0 3 * * *", tz="Europe/Paris", overlap="skip")
app.queue("mail", concurrency=5, rate="100/s", lane_rate=Rate(5), bands={10: 80, 0: 20})


class Sums:
    @app.task
    @staticmethod
    def static(number: int) -> int:
        return number


assert_type(Sums.static.enqueue(1).result("10s"), int)


class Order(BaseModel):
    number: int
    total: Decimal = Decimal()


@attrs.define
class Parcel:
    weight: float
    label: str = ""


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def read_money(cents: int) -> Money:
    return Money(cents)


def cents_of(money: Money) -> int:
    return money.cents


app.type(Money, encode=cents_of, decode=read_money, schema={"type": "integer"})


@app.task(unique=Unique("order", window="1h", mode="ignore"))
async def ship(
    order: Order, parcels: list[Parcel], *, to: Path, price: Annotated[Decimal, Gt(0)] | None = None
) -> dict[str, Money]:
    current.check_cancelled()
    if not parcels:
        raise Cancelled("nothing to ship")
    return {str(order.number): Money(1)}


@app.task
def count(least: Annotated[int, Field(ge=1)] = 1) -> Order:
    return Order(number=least)


assert_type(ship.enqueue(Order(number=1), [Parcel(1.5)], to=Path("a")).result(), dict[str, Money])
assert_type(count.call(2), Call[Order])
assert_type(count(2), Order)


async def main() -> None:
    assert_type(await send.aenqueue("a", subject="b"), Job[str])
    assert_type(await (await add.using(lane="x").aenqueue(1)).aresult(), int)
    assert_type(await app.aenqueue_many([send.call("a", subject="b")]), list[Job[str]])


# --- what stands around a task


class Pool:
    size: int


def get_url() -> str:
    return "url"


async def get_pool(url: str = Depends(get_url)) -> AsyncIterator[Pool]:
    assert_type(url, str)
    yield Pool()


async def get_size(pool: Annotated[Pool, Depends(get_pool)]) -> int:
    return pool.size


def get_rows() -> Iterator[list[int]]:
    yield [1]


@app.task
def charge(order: int, pool: Pool = Depends(get_pool), *, size: int = Depends(get_size)) -> str:
    return f"{order} {pool.size} {size}"


@app.task(queue="mail")
async def acharge(order: int, pool: Annotated[Pool, Depends(get_pool)] = injected) -> str:
    return f"{order} {pool.size}"


assert_type(charge.enqueue(1), Job[str])
assert_type(acharge.enqueue(order=1).result(), str)
assert_type(charge(1, Pool(), size=3), str)


@app.middleware
async def timed(job: RunningJob, run: Proceed) -> Any:
    assert_type(job.tags, tuple[str, ...])
    return await run()


@app.middleware
async def spelled(_job: RunningJob, run: Callable[[], Awaitable[Any]]) -> Any:
    return await run()


@app.on_enqueue
def stamp(job: OutgoingJob) -> None:
    job.lane = job.headers.setdefault("tenant", "acme")
    job.tags.append("stamped")


@app.on_start
async def begin() -> None: ...


@app.on_stop
def end() -> None: ...


with override(get_pool, Pool):
    pass


async def no_run(job: RunningJob) -> Any: ...


def not_async(job: RunningJob, run: Proceed) -> int:
    return job.priority


def no_job() -> None: ...


charge.enqueue("1")  # wrong: str for int, and the pool is no argument
charge.enqueue(1, Pool(), 3)  # wrong: size is no argument by position
acharge.enqueue()  # wrong: order is missing


def wants(pool: Pool = Depends(get_url)) -> None: ...  # wrong: a text is no pool
def asks(rows: list[str] = Depends(get_rows)) -> None: ...  # wrong: these are rows of int


Depends(3)  # wrong: no function
app.middleware(no_run)  # wrong: it takes no run
app.middleware(not_async)  # wrong: nothing to be awaited
app.on_enqueue(no_job)  # wrong: it takes no job
app.on_start(charge)  # wrong: it takes an argument
Windlass(lifespan=3)  # wrong: no function
Windlass(lifespan=get_rows)  # wrong: a generator, without contextmanager
stamp(OutgoingJob())  # wrong: made of a job


add.enqueue("1")  # wrong: str for int
add.enqueue()  # wrong: left is missing
add.enqueue(1, middle=2)  # wrong: no such parameter
send.call("a")  # wrong: subject is missing
add.using(delai=5)  # wrong: no such option
add.using(mode="debounce")  # wrong: no such mode
app.task(queu="mail")  # wrong: no such option
app.task(retry=3)  # wrong: not a policy
app.queue("mail", order="fifo")  # wrong: no such order
app.external("resize", colour="red")  # wrong: no such option
app.schedule("nightly", add, every=5)  # wrong: a task is no call
app.schedule("nightly", add.call(1), overlap="no")  # wrong: no such policy
add.using(lane="x").enqueue("1")  # wrong: str for int
Windlass(beats=5)  # wrong: no such setting
ship.enqueue({"number": 1}, [], to=Path("a"))  # wrong: a dict for a model
ship.enqueue(Order(number=1), [Order(number=2)], to=Path("a"))  # wrong: another class
ship.enqueue(Order(number=1), [], to="a")  # wrong: str for Path
ship.call(Order(number=1), [], to=Path("a"), price=1.5)  # wrong: float for Decimal
ship.using(lane="x").enqueue(Order(number=1), [])  # wrong: to is missing
count.enqueue("2")  # wrong: str for a constrained int
count.enqueue(least=None)  # wrong: None for a constrained int
app.task(unique="order")  # wrong: no Unique
Unique("order", mode="debounce")  # wrong: no such mode
Unique(order=True)  # wrong: names are texts
app.type(Money, encode=cents_of)  # wrong: decode is missing
app.type(Money, encode=len, decode=read_money)  # wrong: encode takes something else
app.type(Money, encode=cents_of, decode=str)  # wrong: decode makes something else
Cancelled(3)  # wrong: the reason is a text
current.check_canceled()  # wrong: no such name
