"""The application that the dashboard is shown with: mail for tenants, images, and things that go wrong."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Literal

from windlass import GiveUp, RetryPolicy, Windlass, current

app = Windlass(name="shop")
app.queue("default", emit="all")
app.queue("mail", concurrency=8, lane_concurrency=2, emit="all")
app.queue("images", emit="all")
app.queue("reports", rate="20/s", emit="all")
app.queue("archive", emit="all")

ONCE = RetryPolicy(max_attempts=1)


@app.task(queue="mail")
async def send(to: str, subject: str, password: str = "", urgent: bool = False) -> str:
    """Send a mail for a tenant.

    The password is that of the mail server.
    """
    await asyncio.sleep(0.05)
    return f"sent {subject!r} to {to}"


@app.task(queue="mail")
async def deliver(seconds: float) -> None:
    """Keep a lane busy."""
    await asyncio.sleep(seconds)


@app.task(queue="images", timeout=timedelta(minutes=5))
async def resize(name: str, width: int, kind: Literal["jpeg", "png", "webp"] = "jpeg") -> dict[str, int]:
    """Make an image smaller."""
    current.log(f"opening {name}")
    for step in range(1, 4):
        await asyncio.sleep(0.02)
        current.progress(step / 4, f"pass {step}")
    current.log("written")
    return {"width": width, "bytes": width * 731}


@app.task(queue="images")
async def film(name: str) -> None:
    """Take long, and say how far it is."""
    for step in range(1, 2_000):
        current.progress(step / 2_000, f"frame {step} of {name}")
        await asyncio.sleep(0.3)


@app.task(queue="reports")
def report(kind: str) -> str:
    """Write a report."""
    return f"{kind} report"


@app.task(retry=ONCE)
def charge(order: int, card: str = "") -> None:
    """Fail, as the bank does not answer."""
    raise ConnectionError(f"the bank does not answer for order {order}")


@app.task(retry=ONCE)
def parse(text: str) -> None:
    """Give up on text that has no meaning."""
    raise GiveUp(f"no meaning in {text!r}")


@app.task(retry=ONCE)
def unlucky(charm: str) -> str:
    """Fail unless a file is there."""
    if not Path(charm).exists():
        raise OSError("out of luck")
    return "lucky"


@app.task(retry=RetryPolicy(max_attempts=5, base=600, cap=3600))
def flaky(number: int) -> int:
    """Fail at first, and wait long for the next attempt."""
    if current.attempt == 1:
        raise TimeoutError("the other side is slow today")
    return number


@app.task
def ledger(amount: int, labels: list[str] | None = None) -> int:
    """Return a number as it came."""
    return amount


@app.task
def collect(source: str) -> list[str]:
    """Begin a flow."""
    return [source, "b", "c"]


@app.task
def count() -> int:
    """A step of a flow."""
    return 3


@app.task(retry=ONCE)
def check(fail: bool = False) -> str:
    """A step of a flow that may fail."""
    if fail:
        raise ValueError("the sums do not agree")
    time.sleep(0.05)
    return "checked"


@app.task
def notify() -> str:
    """The end of a flow."""
    return "told"


@app.task
async def family() -> None:
    """Have children."""
    current.spawn(ledger.call(1))
    current.spawn(ledger.call(2))


@app.task(queue="archive")
def shelve(box: str) -> None:
    """Wait: nobody serves this queue."""


app.external("translate", queue="archive")
app.schedule("nightly-report", report.call("daily"), cron="0 3 * * *", tz="Europe/Paris")
app.schedule("pulse", report.call("pulse"), every="1h")
app.schedule("quick", ledger.call(7), every="2s")
