"""How the shop tests what it does in the background: no server, no worker, no database."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from orders.database import SoldOut
from orders.models import Line, Order, Receipt
from orders.tasks import app, get_book, get_folder, invoice, place
from orders.tenants import tenant

from windlass.errors import InvalidPayload, JobCancelled, JobFailed
from windlass.testing import Bench, override, testing

TEA = Order(customer="Ada", lines=[Line(sku="tea", count=2, price=Decimal("1.50"))])


class MemoryBook:
    """A book of orders without a database."""

    def __init__(self) -> None:
        self.placed: dict[tuple[str, int], Order] = {}
        self.withdrawn: set[tuple[str, int]] = set()
        self.left = {"tea": 10}

    async def is_withdrawn(self, tenant: str, order_id: int) -> bool:
        return (tenant, order_id) in self.withdrawn

    async def add(self, tenant: str, order_id: int, order: Order) -> bool:
        if (tenant, order_id) in self.placed:
            return False
        for line in order.lines:
            if self.left.get(line.sku, 0) < line.count:
                raise SoldOut(line.sku)
            self.left[line.sku] -= line.count
        self.placed[tenant, order_id] = order
        return True


@asynccontextmanager
async def no_database() -> AsyncGenerator[None]:
    yield


@pytest.fixture
def book() -> Iterator[MemoryBook]:
    fake = MemoryBook()
    with override(get_book, lambda: fake):
        yield fake


@pytest.fixture
def jobs(book: MemoryBook, tmp_path: Path) -> Iterator[Bench]:
    tenant.set("acme")
    with testing(app, lifespan=no_database, raises=False) as t, override(get_folder, lambda: tmp_path):
        yield t


def test_an_order_is_placed_and_invoiced(jobs: Bench, book: MemoryBook, tmp_path: Path) -> None:
    job = place.enqueue(7, TEA)
    jobs.drain()
    assert job.result() == Receipt(order_id=7, tenant="acme", total=Decimal("3.00"))
    assert book.placed == {("acme", 7): TEA}
    assert jobs.enqueued(invoice)[0].lane == "acme"
    assert (tmp_path / "acme" / "7.txt").read_text().startswith("acme: invoice 7\nAda\n")


def test_a_second_click_is_the_same_order_and_another_tenant_has_numbers_of_its_own(
    jobs: Bench, book: MemoryBook
) -> None:
    first = place.enqueue(7, TEA)
    again = place.enqueue(7, TEA)
    assert (again.id, again.created) == (first.id, False)
    tenant.set("corner-shop")
    assert place.enqueue(7, TEA).created
    jobs.drain()
    assert set(book.placed) == {("acme", 7), ("corner-shop", 7)}


def test_a_worker_that_dies_after_the_order_was_placed_places_it_once(jobs: Bench, book: MemoryBook) -> None:
    job = place.enqueue(7, TEA)
    jobs.crash(job, after_run=True)
    jobs.drain()
    assert [run.outcome for run in jobs.runs(job)] == ["crash", "done"]
    assert book.left == {"tea": 8}
    assert len(jobs.enqueued(invoice)) == 1


def test_what_is_sold_out_is_a_dead_letter_at_once(jobs: Bench) -> None:
    job = place.enqueue(7, Order(customer="Ada", lines=[Line(sku="rice", count=1, price=Decimal(1))]))
    jobs.drain()
    assert job.state() == "dead"
    with pytest.raises(JobFailed, match="not enough rice"):
        job.result()


def test_a_withdrawn_order_is_cancelled(jobs: Bench, book: MemoryBook) -> None:
    book.withdrawn.add(("acme", 7))
    job = place.enqueue(7, TEA)
    jobs.drain()
    with pytest.raises(JobCancelled, match="the customer has withdrawn the order"):
        job.result()
    jobs.assert_not_enqueued(invoice)


def test_an_invoice_that_the_printer_cannot_print_is_a_dead_letter_after_five_attempts(jobs: Bench) -> None:
    job = invoice.enqueue(7, TEA.model_copy(update={"customer": "Łukasz"}))
    jobs.finish()
    assert [run.outcome for run in jobs.runs(job)] == ["retry"] * 4 + ["dead"]


def test_nothing_is_sent_without_a_tenant_or_with_an_order_that_is_none(jobs: Bench) -> None:
    with pytest.raises(InvalidPayload, match="order_id"):
        place.enqueue(0, TEA)
    tenant.set("")
    with pytest.raises(LookupError, match="whose job is this"):
        place.enqueue(7, TEA)
    jobs.assert_not_enqueued(place)
