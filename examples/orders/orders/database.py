"""The tables, and the pool that web processes and workers open in the same way.

`python -m orders.database` makes the tables and fills the shelves.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Protocol

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from orders.models import Order

URL = os.environ.get("ORDERS_DATABASE", "postgresql+asyncpg://localhost/orders")
ON_THE_SHELVES = {"tea": 100_000, "rice": 100_000, "salt": 100_000}


class Base(DeclarativeBase): ...


class PlacedOrder(Base):
    __tablename__ = "placed_order"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    customer: Mapped[str]
    total: Mapped[Decimal]


class Withdrawal(Base):
    __tablename__ = "withdrawal"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Stock(Base):
    __tablename__ = "stock"
    sku: Mapped[str] = mapped_column(primary_key=True)
    available: Mapped[int]


@asynccontextmanager
async def connected() -> AsyncGenerator[async_sessionmaker[AsyncSession]]:
    engine = create_async_engine(URL, pool_size=5, max_overflow=0)
    try:
        yield async_sessionmaker(engine)
    finally:
        await engine.dispose()


class SoldOut(Exception):
    """There is not enough of an article, or no such article."""


class Book(Protocol):
    """The book of orders, as tasks see it. Tests have one of their own."""

    async def is_withdrawn(self, tenant: str, order_id: int) -> bool: ...

    async def add(self, tenant: str, order_id: int, order: Order) -> bool: ...


class DatabaseBook:
    """The book of orders in one transaction of the database."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def is_withdrawn(self, tenant: str, order_id: int) -> bool:
        return await self._session.get(Withdrawal, (tenant, order_id)) is not None

    async def add(self, tenant: str, order_id: int, order: Order) -> bool:
        """Write the order down, and take its articles from the shelves. False if an earlier run did."""
        row = {"tenant": tenant, "order_id": order_id, "customer": order.customer, "total": order.total}
        added = insert(PlacedOrder).values(row).on_conflict_do_nothing().returning(PlacedOrder.order_id)
        if await self._session.scalar(added) is None:
            return False
        for line in sorted(order.lines, key=lambda line: line.sku):  # one order of locks for all
            taken = (
                update(Stock)
                .where(Stock.sku == line.sku, Stock.available >= line.count)
                .values(available=Stock.available - line.count)
                .returning(Stock.sku)
            )
            if await self._session.scalar(taken) is None:
                raise SoldOut(line.sku)
        return True

    async def withdraw(self, tenant: str, order_id: int) -> None:
        row = {"tenant": tenant, "order_id": order_id}
        await self._session.execute(insert(Withdrawal).values(row).on_conflict_do_nothing())

    async def find(self, tenant: str, order_id: int) -> PlacedOrder | None:
        found = select(PlacedOrder).where(PlacedOrder.tenant == tenant, PlacedOrder.order_id == order_id)
        return await self._session.scalar(found)


async def make_tables() -> None:
    engine = create_async_engine(URL)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        shelves = [{"sku": sku, "available": count} for sku, count in ON_THE_SHELVES.items()]
        await connection.execute(insert(Stock).values(shelves).on_conflict_do_nothing())
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(make_tables())
