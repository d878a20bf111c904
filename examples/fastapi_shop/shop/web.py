"""The pages of the shop: they enqueue, show progress, and take what webhooks tell."""

import base64
import hmac
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse

from shop.tasks import app as jobs
from shop.tasks import pay, report
from windlass.api import Mounted, Visitor
from windlass.errors import InvalidOption, JobNotFound

URL = os.environ.get("SHOP_URL", "http://127.0.0.1:8000")
SECRET = os.environ.get("SHOP_SECRET", "")
HERE = Path(__file__).parent

# In this shop only staff reach the queue: a real one puts a login in front of it.
queue = Mounted(jobs, visitor=Visitor("staff", scopes=["read", "operate"]))
paid: dict[str, str] = {}
"""What webhooks have told, by job; a real shop has a database for it."""


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with queue.lifespan():
        yield
    await jobs.aclose()


web = FastAPI(title="Shop", lifespan=lifespan)
web.mount("/queue", queue)


@web.get("/", include_in_schema=False)
async def page() -> FileResponse:
    return FileResponse(HERE / "page.html")


@web.get("/page.js", include_in_schema=False)
async def script() -> FileResponse:
    return FileResponse(HERE / "page.js")


@web.post("/{tenant}/orders/{order}/pay", status_code=202)
async def order_paid(tenant: str, order: int, cents: int) -> dict[str, str]:
    """A second click, or a client that tries again, gets the same job."""
    call = pay.using(lane=tenant, key=f"{tenant}/{order}", window="1d", callback=f"{URL}/hooks")
    return {"job": (await call.aenqueue(tenant, order, cents)).id}


@web.post("/{tenant}/reports", status_code=202)
async def new_report(tenant: str, pages: int = 10) -> dict[str, str]:
    return {"job": (await report.using(lane=tenant).aenqueue(tenant, pages)).id}


@web.get("/jobs/{job}")
async def state(job: str) -> dict[str, Any]:
    """How far a job is, for the bar in the page."""
    try:
        handle = jobs.job(job)
        state, progress = await handle.astate(), await handle.aprogress()
    except (InvalidOption, JobNotFound) as error:
        raise HTTPException(404, str(error)) from None
    fraction, message = progress or (0.0, "")
    return {"state": state, "fraction": fraction, "message": message, "told": paid.get(job)}


@web.post("/hooks", status_code=204, include_in_schema=False)
async def told(request: Request) -> None:
    """Windlass tells how a payment ended. The same message may come twice, which changes nothing here."""
    body = await request.body()
    if not is_genuine(SECRET, request, body):
        raise HTTPException(401, "this is not signed by the queue of this shop")
    message = json.loads(body)
    paid[message["job"]["id"]] = message["type"]


def is_genuine(secret: str, request: Request, body: bytes) -> bool:
    """Whether a message is signed as Standard Webhooks says, within the last five minutes."""
    sent = request.headers.get("webhook-timestamp", "")
    if not secret or not sent.isdigit() or abs(time.time() - int(sent)) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{request.headers.get('webhook-id', '')}.{sent}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return any(
        hmac.compare_digest(wanted, given) for given in request.headers.get("webhook-signature", "").split()
    )
