"""A job and the data that it is about, in one transaction of Django's, in one PostgreSQL."""

import os
from urllib.parse import parse_qs, urlsplit

import django
import pytest
from django.conf import settings
from django.db import connection, transaction

from windlass.errors import JobNotFound


@pytest.fixture(scope="module", autouse=True)
def django_site() -> None:
    """Django, with its database and the store in one server."""
    where = urlsplit(os.environ["CASES_DSN"])
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": where.path.strip("/"),
        "USER": where.username,
        "HOST": parse_qs(where.query)["host"][0],
    }
    settings.configure(
        INSTALLED_APPS=["windlass.django"],
        DATABASES={"default": database},
        WINDLASS={"url": os.environ["CASES_DSN"], "enqueue": "in_transaction"},
    )
    django.setup()


def test_a_job_exists_when_the_transaction_commits_and_only_then() -> None:
    from windlass.django import app

    @app.task(name="send")
    def send(number: int) -> None: ...

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (number integer)")
    app.close()
    kept = []
    for number, commits in ((1, True), (2, False)):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [number])
            job = send.enqueue(number)
            transaction.set_rollback(not commits)
        kept.append(job)
    assert str(kept[0].state()) == "ready"
    with pytest.raises(JobNotFound):
        kept[1].state()
    outside = send.enqueue(3)
    assert str(outside.state()) == "ready"
    app.close()
    connection.close()
