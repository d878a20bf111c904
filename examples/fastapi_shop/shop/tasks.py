"""What the shop does in the background."""

import asyncio
import os

from windlass import RetryPolicy, Windlass, current

app = Windlass(webhooks=True)  # $WINDLASS_URL, else sqlite:///windlass.db
app.queue("payments", rate="10/s", lane_concurrency=2)
app.queue("reports", lane_concurrency=1)


@app.task(queue="payments", retry=RetryPolicy(max_attempts=5, base=2), timeout=30)
async def pay(tenant: str, order: int, cents: int) -> str:
    """Ask the bank. Its key is the job's, so a second run of this job pays nothing twice."""
    await asyncio.sleep(float(os.environ.get("SHOP_BANK_SECONDS", "0.2")))  # here a request to the bank
    return f"{tenant} order {order}: {cents / 100:.2f}, reference {current.idempotency_key}"


@app.task(queue="reports", timeout="10m")
async def report(tenant: str, pages: int) -> dict[str, int]:
    """Make a report page by page, and say how far it is."""
    for page in range(pages):
        await asyncio.sleep(float(os.environ.get("SHOP_PAGE_SECONDS", "0.5")))
        current.progress((page + 1) / pages, f"page {page + 1} of {pages}")
    return {"pages": pages}
