"""A person is forgotten in object storage, too."""

import asyncio
from collections.abc import Mapping

import pytest

from windlass import Windlass
from windlass.admin.forgetting import Forgetting
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.errors import ValuesUnavailable

ADA = "ada.lovelace@example.com "


def test_no_object_of_a_person_is_left(store: Mapping[str, str], values_url: str) -> None:
    app = Windlass(**store, values=values_url, values_kept="30d")

    @app.task
    def repeat(text: str) -> str:
        return text * 2

    async def main() -> None:
        values = app.values
        assert values is not None
        async with app.worker():
            hers = await repeat.using(tags=("user:42",)).aenqueue(ADA * 10_000)
            others = await repeat.using(tags=("user:43",)).aenqueue("b" * 100_000)
            assert await hers.aresult(30)
            assert await others.aresult(30)
        waiting = await repeat.using(tags=("user:42",), delay=60).aenqueue(ADA * 10_000)
        broker = await app.broker()
        detail = (await broker.get([hers.id]))[0]
        assert detail is not None
        await values.keep_result(detail)
        forgetting = Forgetting(app, broker, "user:42")
        async for _ in forgetting.steps():
            pass
        assert forgetting.done.jobs == 2
        left = [each.key for prefix in ("p/", "r/") for each in await values.bucket.page(prefix, "", 100)]
        assert len(left) == 2
        assert all(others.id in key for key in left)
        assert waiting.id != hers.id
        await app.aclose()

    asyncio.run(main())


def test_a_bucket_that_is_away_stops_it_while_the_records_are_there(bucket: str, unused_port: int) -> None:
    app = Windlass(
        "memory://", values=f"s3://{bucket}?region=us-east-1&endpoint=http://127.0.0.1:{unused_port}"
    )

    async def main() -> None:
        await app.external("work").using(tags=("user:42",)).aenqueue("small")
        broker = await app.broker()
        with pytest.raises(ValuesUnavailable):
            async for _ in Forgetting(app, broker, "user:42").steps():
                pass
        assert len((await broker.list(JobQuery(), FIRST_PAGE, 10)).jobs) == 1
        await app.aclose()

    asyncio.run(main())
