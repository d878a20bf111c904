"""The API of the shop: it takes orders, and says what became of them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from orders.database import DatabaseBook, connected
from orders.models import Order, OrderId, Receipt
from orders.tasks import app as jobs
from orders.tasks import place
from orders.tenants import tenant
from windlass.errors import InvalidOption, JobNotFound


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncGenerator[None]:
    async with connected() as sessions:
        web.state.sessions = sessions
        yield
    await jobs.aclose()


web = FastAPI(title="Orders", lifespan=lifespan)


@web.middleware("http")
async def tenant_of_request(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
    name = request.headers.get("x-tenant")  # in earnest: from the login, not from the caller
    if not name:
        return JSONResponse({"detail": "who are you? Send X-Tenant"}, 400)
    tenant.set(name)
    return await proceed(request)


async def get_session(request: Request) -> AsyncGenerator[AsyncSession]:
    async with request.app.state.sessions.begin() as session:
        yield session


Session = Annotated[AsyncSession, Depends(get_session)]  # FastAPI's Depends: this is for routes


class Ticket(BaseModel):
    job: str
    created: bool


@web.put("/orders/{order_id}", status_code=202)
async def buy(order_id: OrderId, order: Order) -> Ticket:
    """A second click, or a client that tries again, gets the same job."""
    job = await place.aenqueue(order_id, order)
    return Ticket(job=job.id, created=job.created)


@web.delete("/orders/{order_id}", status_code=204)
async def withdraw(order_id: OrderId, session: Session) -> None:
    """Counts if no worker has begun with the order."""
    await DatabaseBook(session).withdraw(tenant.get(), order_id)


@web.get("/orders/{order_id}")
async def show(order_id: OrderId, session: Session) -> Receipt:
    found = await DatabaseBook(session).find(tenant.get(), order_id)
    if found is None:
        raise HTTPException(404, "it is not placed yet, or will not be")
    return Receipt(order_id=found.order_id, tenant=found.tenant, total=found.total)


@web.get("/jobs/{job}")
async def state(job: str) -> dict[str, str]:
    try:
        return {"state": await jobs.job(job).astate()}
    except (InvalidOption, JobNotFound) as error:
        raise HTTPException(404, str(error)) from None
