"""A bucket and a folder do the same."""

import asyncio
import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from windlass.completed import complete
from windlass.errors import ValuesUnavailable
from windlass.values.bucket import Bucket
from windlass.values.place import read_url


@pytest.fixture
def bucket_here(values_url: str) -> Bucket:
    return Bucket(read_url(values_url))


def test_what_is_put_is_read_again_by_blocking_and_async_code(bucket_here: Bucket) -> None:
    assert complete(bucket_here.put("p/shop/1", b"one", blocking=True))
    assert asyncio.run(bucket_here.put("p/shop/2", b"two" * 4_000_000, blocking=False))
    assert asyncio.run(bucket_here.get("p/shop/1", blocking=False)) == b"one"
    assert complete(bucket_here.get("p/shop/2", blocking=True)) == b"two" * 4_000_000
    assert complete(bucket_here.get("p/shop/3", blocking=True)) is None


@pytest.mark.parametrize("blocking", [True, False])
def test_an_object_is_never_replaced(bucket_here: Bucket, blocking: bool) -> None:
    async def main() -> None:
        assert await bucket_here.put("r/shop/1/7", b"first", blocking=blocking)
        assert not await bucket_here.put("r/shop/1/7", b"second", blocking=blocking)
        assert await bucket_here.get("r/shop/1/7", blocking=blocking) == b"first"

    asyncio.run(main())


def test_a_page_is_in_the_order_of_names_and_goes_on_behind_one(bucket_here: Bucket) -> None:
    async def main() -> None:
        for number in (5, 3, 1, 4, 2):
            await bucket_here.put(f"p/shop/{number}", b".", blocking=False)
        await bucket_here.put("p/shopping/1", b".", blocking=False)
        first = await bucket_here.page("p/shop/", "", 2)
        assert [stored.key for stored in first] == ["p/shop/1", "p/shop/2"]
        rest = await bucket_here.page("p/shop/", "p/shop/2", 10)
        assert [stored.key for stored in rest] == ["p/shop/3", "p/shop/4", "p/shop/5"]
        assert await bucket_here.page("q/shop/", "", 2) == []

    asyncio.run(main())


def test_what_is_gone_already_counts_as_removed(bucket_here: Bucket) -> None:
    async def main() -> None:
        await bucket_here.put("p/shop/1", b".", blocking=False)
        await bucket_here.remove(["p/shop/0", "p/shop/1", "p/shop/1"])
        assert await bucket_here.get("p/shop/1", blocking=False) is None

    asyncio.run(main())


def test_a_signed_link_leads_to_the_object_and_to_no_other(s3_url: str) -> None:
    bucket = Bucket(read_url(s3_url))

    async def main() -> str:
        await bucket.put("r/shop/1/7", b"mine", blocking=False)
        return await bucket.link("r/shop/1/7") or ""

    link = asyncio.run(main())
    parts = urlsplit(link)
    asked = http.client.HTTPConnection(parts.netloc, timeout=30)
    asked.request("GET", f"{parts.path}?{parts.query}")
    assert asked.getresponse().read() == b"mine"
    asked.close()
    assert "X-Amz-Expires=300" in parts.query
    assert "planted-secret" not in link


def test_a_folder_signs_no_links(tmp_path: Path) -> None:
    assert asyncio.run(Bucket(read_url(f"file://{tmp_path}")).link("r/shop/1/7")) is None


def test_a_folder_that_we_make_is_ours_alone_and_empty_ones_go(tmp_path: Path) -> None:
    bucket = Bucket(read_url(f"file://{tmp_path}/values"))
    complete(bucket.put("r/shop/1/7", b".", blocking=True))
    assert (tmp_path / "values").stat().st_mode & 0o077 == 0
    asyncio.run(bucket.remove(["r/shop/1/7"]))
    assert not (tmp_path / "values" / "r").exists()


@pytest.mark.parametrize("blocking", [True, False])
def test_nobody_there_is_its_own_error_and_tells_no_key(
    bucket: str, blocking: bool, unused_port: int
) -> None:
    away = Bucket(read_url(f"s3://{bucket}?region=us-east-1&endpoint=http://127.0.0.1:{unused_port}"))

    async def main() -> None:
        with pytest.raises(ValuesUnavailable) as caught:
            await away.get("p/shop/1", blocking=blocking)
        assert str(caught.value).startswith(f"object storage s3://{bucket} does not do it: ")
        assert "planted-secret" not in str(caught.value)
        assert "AKIATEST" not in str(caught.value)

    asyncio.run(main())


def test_a_bucket_that_is_not_there_is_away_too(s3_port: int, bucket: str) -> None:
    nowhere = Bucket(read_url(f"s3://nowhere-{bucket}?region=us-east-1&endpoint=http://127.0.0.1:{s3_port}"))
    with pytest.raises(ValuesUnavailable):
        complete(nowhere.put("p/shop/1", b".", blocking=True))
    with pytest.raises(ValuesUnavailable):
        complete(nowhere.get("p/shop/1", blocking=True))
