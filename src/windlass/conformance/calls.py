"""Calls under the unique key `k`, and what must become of them."""

from typing import Any

from windlass.conformance.harness import Harness
from windlass.core.job import JobDetail, Mode, Receipt, Status
from windlass.core.units import JobId


async def call(store: Harness, mode: Mode = Mode.IGNORE, **options: Any) -> Receipt:
    """One call."""
    job = store.job(**{"key": "k", "mode": mode, **options})
    (receipt,) = await store.enqueue(job)
    assert receipt.job == job.id
    return receipt


async def creates(store: Harness, mode: Mode = Mode.IGNORE, **options: Any) -> JobId:
    """Require that a call creates a job of its own."""
    receipt = await call(store, mode, **options)
    assert receipt == Receipt(Status.CREATED, receipt.job)
    return receipt.job


async def absorbed_by(store: Harness, first: JobId, mode: Mode = Mode.IGNORE, **options: Any) -> None:
    """Require that a call is a duplicate of the first and changes nothing."""
    before = await store.everything()
    receipt = await call(store, mode, **options)
    assert receipt == Receipt(Status.DUPLICATE, receipt.job, of=first)
    assert await store.everything() == before
    assert await store.missing(receipt.job)


async def replaces(store: Harness, first: JobId, **options: Any) -> JobDetail:
    """Require that a call replaces what the first was to do, and read that."""
    receipt = await call(store, Mode.REPLACE, **options)
    assert receipt == Receipt(Status.REPLACED, receipt.job, of=first)
    assert await store.missing(receipt.job)
    return await store.get(first)
