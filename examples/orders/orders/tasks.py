"""What workers do: place orders, and write invoices."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import sentry_sdk
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from orders.database import Book, DatabaseBook, SoldOut, connected
from orders.models import Order, OrderId, Receipt
from orders.tenants import tenant
from windlass import (
    Cancelled,
    Depends,
    GiveUp,
    OutgoingJob,
    Proceed,
    RetryPolicy,
    RunningJob,
    Unique,
    Windlass,
    current,
    injected,
)
from windlass.sentry import WindlassIntegration

BANK_SECONDS = float(os.environ.get("ORDERS_BANK_SECONDS", "0.1"))

# The address is in $SENTRY_DSN. Without the second option each process imports all frameworks that it finds.
sentry_sdk.init(integrations=[WindlassIntegration()], auto_enabling_integrations=False)


@dataclass(frozen=True)
class Resources:
    """What a worker process opens before its first job."""

    sessions: async_sessionmaker[AsyncSession]
    invoices: Path


@asynccontextmanager
async def lifespan() -> AsyncGenerator[Resources]:
    async with connected() as sessions:
        yield Resources(sessions, Path(os.environ.get("ORDERS_INVOICES", "invoices")))


app = Windlass(lifespan=lifespan)  # $WINDLASS_URL
app.queue("orders", lane_concurrency=8)  # a lane is a tenant
app.queue("invoices", concurrency=2)  # each run has a process to itself: not one for each slot


@app.on_enqueue
def stamp(job: OutgoingJob) -> None:
    """Every job belongs to a tenant, and tenants take turns."""
    if not tenant.get():
        raise LookupError(f"{job.task}: whose job is this? Set `tenant` before you enqueue")
    job.lane = job.headers["tenant"] = tenant.get()


@app.middleware
async def with_tenant(job: RunningJob, run: Proceed) -> Any:
    if "tenant" not in job.headers:
        raise GiveUp("the job has no tenant")
    tenant.set(job.headers["tenant"])
    sentry_sdk.set_tag("tenant", tenant.get())
    return await run()


def get_resources() -> Resources:
    resources: Resources = current.resources
    return resources


async def get_session(resources: Resources = Depends(get_resources)) -> AsyncGenerator[AsyncSession]:
    async with resources.sessions.begin() as session:  # commits after the task; rolls back if it raises
        yield session


def get_book(session: Annotated[AsyncSession, Depends(get_session)]) -> Book:
    return DatabaseBook(session)


def get_folder(resources: Resources = Depends(get_resources)) -> Path:
    return resources.invoices


@app.task(
    queue="orders",
    unique=Unique("order_id", window="1h"),  # within the lane: each tenant counts its own orders
    retry=RetryPolicy(max_attempts=8, base=1),
    timeout=30,
)
async def place(
    order_id: OrderId, order: Order, book: Annotated[Book, Depends(get_book)] = injected
) -> Receipt:
    if await book.is_withdrawn(tenant.get(), order_id):
        raise Cancelled("the customer has withdrawn the order")
    await asyncio.sleep(BANK_SECONDS)  # here a request to the bank, with `current.idempotency_key`
    try:
        await book.add(tenant.get(), order_id, order)  # an earlier run may have done it, and died
    except SoldOut as error:
        raise GiveUp(f"not enough {error}") from error
    current.spawn(invoice.call(order_id, order))  # exists if this run is what the store keeps
    return Receipt(order_id=order_id, tenant=tenant.get(), total=order.total)


@app.task(queue="invoices", run="process", retry=RetryPolicy(max_attempts=5, base=0.2), timeout=30)
def invoice(order_id: OrderId, order: Order, folder: Path = Depends(get_folder)) -> Path:
    """Write a file for a printer that knows Latin-1. What may hang or crash gets a process of its own."""
    path = folder / tenant.get() / f"{order_id}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = [f"{tenant.get()}: invoice {order_id}", order.customer]
    lines = [f"{line.count} x {line.sku} {line.price}" for line in order.lines]
    beside = path.with_suffix(
        f".{current.job.id}.part"
    )  # nobody reads half of a file, nor if this runs twice
    beside.write_bytes("\n".join([*head, *lines, f"total {order.total}", ""]).encode("latin-1"))
    beside.replace(path)
    return path
