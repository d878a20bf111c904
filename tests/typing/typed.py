"""Read by the type checker, never run: what the types of the public face promise."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Annotated, Any, assert_type

from windlass import Call, Depends, Job, OutgoingJob, Proceed, Rate, RunningJob, Windlass, injected
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
assert_type(app.enqueue_many([add.call(1), send.call("a", subject="b")]), list[Job[int | str]])
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
