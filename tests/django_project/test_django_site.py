"""The example site: pages that enqueue, `manage.py windlass`, the admin."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

BUY = """
from django.test import Client
print(Client().get("/buy/{book}?email=ann@example.com").content.decode())
"""


def test_the_tests_of_the_site_pass(manage: Callable[..., str]) -> None:
    manage("test", "-v0")


def test_its_tests_pass_on_a_database_whose_connections_close(
    manage: Callable[..., str], environment: dict[str, str], tmp_path: Path
) -> None:
    """A TestCase runs in a transaction. Django does not close a database in memory, so this one is a file."""
    (tmp_path / "on_disk.py").write_text(
        "from project.settings import *\n"
        f"DATABASES['default']['TEST'] = {{'NAME': {str(tmp_path / 'tests.sqlite3')!r}}}\n"
    )
    environment["PYTHONPATH"] += f":{tmp_path}"
    manage("test", "-v0", "--noinput", "--settings", "on_disk")


def test_a_project_without_a_default_kind_of_key_has_nothing_wrong_either(
    manage: Callable[..., str], environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "bare.py").write_text("DATABASES = {}\nINSTALLED_APPS = ['windlass.django']\n")
    environment["PYTHONPATH"] += f":{tmp_path}"
    assert "no issues" in manage("check", "--settings", "bare")


def test_django_finds_nothing_wrong(manage: Callable[..., str]) -> None:
    assert "no issues" in manage("check")
    assert "No changes" in manage("makemigrations", "--check", "--dry-run")


@pytest.mark.usefixtures("worker")
def test_jobs_of_a_committed_transaction_run(site: Callable[[str], str]) -> None:
    sent = json.loads(site(BUY.format(book="Dune")))
    code = f"""
from shop.models import Order
from shop.tasks import send_receipt, pack
from windlass.django import app
print(send_receipt.handle("{sent["receipt"]}").result(timeout=30))
print(app.job("{sent["packing"]}").result(timeout=30))
result = pack.get_result("{sent["packing"]}")
print(result.status, result.return_value, result.attempts, result.args, result.is_finished)
order = Order.objects.get()
print(order.receipt_sent, order.packed)
"""
    assert site(code).splitlines() == [
        "receipt for ann@example.com",
        "1",
        "SUCCESSFUL 1 1 [1] True",
        "True True",
    ]


def test_nothing_is_enqueued_by_a_transaction_that_is_rolled_back(
    site: Callable[[str], str], manage: Callable[..., str]
) -> None:
    site(BUY.format(book="sold-out"))
    assert manage("windlass", "jobs", "--json") == ""
    site(BUY.format(book="Dune"))
    assert len(manage("windlass", "jobs", "--json").splitlines()) == 2


def test_the_admin_shows_how_many_jobs_wait(site: Callable[[str], str]) -> None:
    site(BUY.format(book="Dune"))
    page = site(
        """
from django.contrib.auth.models import Permission, User
from django.test import Client
User.objects.create_superuser("root", password="root")
clerk = User.objects.create_user("clerk", password="clerk", is_staff=True)
for user in ("root", "clerk"):
    client = Client()
    client.login(username=user, password=user)
    print(client.get("/admin/windlass/queue/").status_code)
clerk.user_permissions.add(Permission.objects.get(codename="view_queue"))
answer = client.get("/admin/windlass/queue/")
print(answer.status_code, "".join(answer.content.decode().split()))
"""
    )
    allowed, refused, permitted = page.splitlines()
    assert (allowed, refused) == ("200", "403")
    assert permitted.startswith("200")
    assert "<th>mail</th><td>1</td>" in permitted
    assert 'href="http://127.0.0.1:8200/"' in permitted


def test_a_wrong_setting_is_named(manage: Callable[..., str], environment: dict[str, str]) -> None:
    environment["WINDLASS_URL"] = "nonsense"
    with pytest.raises(
        AssertionError, match="ImproperlyConfigured: WINDLASS: url: a store is named by a URL"
    ):
        manage("check")
