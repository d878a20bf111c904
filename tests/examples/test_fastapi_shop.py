"""The shop: tenants that do not wait for each other, payments that happen once, progress, signed messages."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import free_port
from tests.examples.programs import Programs, answers, eventually

pytestmark = pytest.mark.slow


class Shop(Programs):
    """The shop as its page says how to start it."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(
            "fastapi_shop",
            folder,
            WINDLASS_WEBHOOK_ALLOW="127.0.0.1",
            SHOP_URL=self.url,
            SHOP_BANK_SECONDS="0.05",
            SHOP_PAGE_SECONDS="0.1",
        )
        self.environment["SHOP_SECRET"] = self.run(
            "-m", "windlass", "webhooks", "shop.tasks:app", "secret", f"{self.url}/hooks"
        ).split()[0]
        self.start("uvicorn", "shop.web:web", "--port", str(port), "--log-level", "warning")
        eventually(lambda: answers(f"{self.url}/queue/readyz"), hint=self.log)

    def work(self) -> "subprocess.Popen[bytes]":
        return self.start("windlass", "worker", "shop.tasks:app", "--processes", "1")

    def post(self, path: str, **asked: Any) -> str:
        answer = httpx.post(self.url + path, params=asked, timeout=30)
        assert answer.status_code == 202, answer.text
        return answer.json()["job"]

    def get(self, path: str, **asked: Any) -> Any:
        answer = httpx.get(self.url + path, params=asked, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path) as started:
        yield started


def test_payments_of_tenants_happen_once_and_the_shop_is_told(shop: Shop) -> None:
    jobs = [shop.post(f"/acme/orders/{order}/pay", cents=1999) for order in range(30)]
    other = shop.post("/corner-shop/orders/1/pay", cents=500)
    assert shop.post("/acme/orders/3/pay", cents=1999) == jobs[3], "a second click is the same job"
    shop.work()
    told = eventually(lambda: shop.get(f"/jobs/{other}")["told"], hint=shop.log)
    assert told == "job.done"
    eventually(lambda: all(shop.get(f"/jobs/{job}")["told"] == "job.done" for job in jobs), hint=shop.log)
    paid = [shop.get(f"/queue/v1/jobs/{job}") for job in jobs]
    assert [job["lane"] for job in paid] == ["acme"] * 30
    assert all(len(job["deliveries"]) == 1 for job in paid)
    first_of_other = shop.get(f"/queue/v1/jobs/{other}")["deliveries"][0]["claimed_at"]
    before = [job for job in paid if job["deliveries"][0]["claimed_at"] < first_of_other]
    assert len(before) < 20, "it did not wait for the thirty of the other tenant"
    assert paid[7]["result"].startswith("acme order 7: 19.99, reference ")


def test_a_report_tells_how_far_it_is_though_its_worker_is_killed(shop: Shop) -> None:
    worker = shop.work()
    job = shop.post("/acme/reports", pages=20)
    eventually(lambda: shop.get(f"/jobs/{job}")["fraction"] >= 0.2, hint=shop.log)
    worker.kill()
    shop.work()
    eventually(lambda: shop.get(f"/jobs/{job}")["state"] == "done", hint=shop.log)
    shown = shop.get(f"/jobs/{job}")
    assert (shown["fraction"], shown["message"]) == (1.0, "page 20 of 20")


def test_a_message_that_nobody_signed_is_refused(shop: Shop) -> None:
    forged = {"type": "job.done", "job": {"id": "x"}}
    for headers in (
        {},
        {"webhook-id": "1", "webhook-timestamp": "1700000000", "webhook-signature": "v1,AAAA"},
    ):
        assert httpx.post(f"{shop.url}/hooks", json=forged, headers=headers).status_code == 401


def test_the_page_and_the_queue_are_there(shop: Shop) -> None:
    assert '<progress max="1"' in httpx.get(shop.url).text
    assert httpx.get(f"{shop.url}/page.js").status_code == 200
    assert {"payments", "reports"} <= {each["name"] for each in shop.get("/queue/v1/queues")}
    assert httpx.get(f"{shop.url}/jobs/nonsense").status_code == 404
