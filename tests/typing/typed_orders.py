"""Read by the type checkers, never run: what they say of mistakes in a program, `examples/orders`."""

from collections.abc import AsyncGenerator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, assert_type

from orders.database import Book
from orders.models import Line, Order, Receipt
from orders.tasks import Resources, app, get_book, get_folder, get_session, invoice, place
from orders.web import web
from sqlalchemy.ext.asyncio import AsyncSession

from windlass import Depends, Job, OutgoingJob, Proceed, RunningJob, Windlass, current, injected
from windlass.testing import AsyncBench, Bench, override, testing

TEA = Order(customer="Ada", lines=[Line(sku="tea", count=2, price=Decimal("1.50"))])


async def route() -> Receipt:
    job = await place.using(priority=5).aenqueue(7, TEA)
    assert_type(job, Job[Receipt])
    assert_type(invoice.enqueue(7, TEA).result(timeout=1), Path)
    current.spawn(invoice.call(7, TEA, Path("invoices")))  # no checker knows: it is refused when it is called
    return await job.aresult()


async def mistaken_route(number: str) -> str:
    await place.aenqueue(number, TEA)  # wrong: a text is no number
    await place.aenqueue(7)  # wrong: the order is missing
    await place.aenqueue(7, TEA.model_dump())  # wrong: a dict is no order
    await place.aenqueue(7, TEA.lines)  # wrong: nor are its lines
    await place.aenqueue(7, TEA, priority=5)  # wrong: this belongs into `using`
    await app.aenqueue_many([place.call(7), invoice.call(7, TEA)])  # wrong: the order is missing
    current.spawn(place)  # wrong: a task is no call
    job = await place.aenqueue(7, TEA)
    job.created()  # wrong: no method
    return await job.aresult()  # wrong: a receipt is no text


@app.task
async def refund(
    order_id: int,
    *,
    book: Annotated[Book, Depends(get_book)] = injected,
    session: AsyncSession = Depends(get_session),
) -> None: ...


@app.task
async def mistaken(session: Book = Depends(get_session)) -> None: ...  # wrong: a session is no book


refund.enqueue(7)
refund.enqueue(order_id="7")  # wrong: a text is no number
refund.using(unique="order_id").enqueue(7)  # wrong: an option of the task


@app.middleware
async def with_tenant(job: RunningJob, run: Proceed) -> Any:
    job.headers["tenant"] = "acme"  # wrong: of a job that runs, they are read
    return run(job)  # wrong: it takes nothing


@app.middleware  # wrong: it takes no `run`
async def before(job: RunningJob) -> None: ...


@app.on_enqueue
def stamp(job: OutgoingJob) -> None:
    job.headers["tenant"] = 7  # wrong: headers are texts
    job.lane = None  # wrong: a lane is a text
    job.queue = "urgent"  # wrong: it is read


async def pool() -> AsyncGenerator[Resources]:
    yield Resources(current.resources, "invoices")  # wrong: a text is no folder


Windlass(lifespan=pool)  # wrong: a generator, without asynccontextmanager
web.state.jobs = app
with testing(app, lifespan=pool) as t, override(get_folder, lambda: Path("a")):  # wrong: the same
    assert_type(t, Bench)
    assert_type(t.run(place, 7, TEA), Receipt)
    t.run(place, TEA)  # wrong: the number is missing
    override(get_folder)  # wrong: by what?


async def test() -> None:
    async with testing(app) as t:
        assert_type(t, AsyncBench)
        assert_type(await t.run(invoice, 7, TEA), Path)
