"""An archive in object storage: an object of JSON lines for each batch of entries.

    d/<namespace>/<yyyy>/<mm>/<dd>/<time>-<uuid>.jsonl

Objects are never changed. To forget, an object is put anew under another name, without what is of a person,
and then the old one is removed. A process that is killed in between leaves both; the next `forget` finds the
old one, and an entry may be there twice.
"""

import uuid
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby

from windlass.errors import StoreUnavailable, ValuesUnavailable
from windlass.observe.archive.entry import Entry, blanked, encode
from windlass.values.bucket import Bucket
from windlass.values.place import StorageUrl

_PAGE = 1_000


class ObjectArchive:
    """A bucket, or a part of one."""

    def __init__(self, place: StorageUrl) -> None:
        self._bucket = Bucket(place)

    async def write(self, entries: Sequence[Entry]) -> None:
        """See `Archive`."""
        with self._taking():
            for namespace, those in groupby(entries, lambda entry: entry.namespace):
                batch = list(those)
                at = datetime.fromisoformat(batch[-1].at)
                await self._put(
                    f"d/{namespace}/{at:%Y/%m/%d/%H%M%S}", b"".join(encode(entry) + b"\n" for entry in batch)
                )

    async def forget(self, namespace: str, tag: str) -> int:
        """See `Archive`. Two at once may each put what the other has blanked. So an object that was put for
        one that is gone by then is removed again, and what has come meanwhile is read as well.
        """
        found = 0
        seen: set[str] = set()
        with self._taking():
            while new := [key async for key in self._keys(f"d/{namespace}/") if key not in seen]:
                for key in new:
                    found += await self._blank(key, namespace, tag)
                seen.update(new)
        return found

    async def close(self) -> None:
        """Nothing stays open between two calls."""

    async def _put(self, beginning: str, document: bytes) -> str:
        # Never a name that follows from the contents: it would be another's object that is removed below.
        key = f"{beginning}-{uuid.uuid4()}.jsonl"
        if not await self._bucket.put(key, document, blocking=False):
            raise StoreUnavailable(f"the archive {self._bucket.place.shown} has {key} already")
        return key

    async def _keys(self, prefix: str) -> AsyncIterator[str]:
        after = ""
        while page := await self._bucket.page(prefix, after, _PAGE):
            for stored in page:
                yield stored.key
            after = page[-1].key

    async def _blank(self, key: str, namespace: str, tag: str) -> int:
        """Blank the entries of a tag in an object; how many they were."""
        document = await self._bucket.get(key, blocking=False)
        if document is None:
            return 0
        lines = document.splitlines(keepends=True)
        blank = [blanked(line, namespace, tag) for line in lines]
        found = sum(line is not None for line in blank)
        if found:
            folder, _, name = key.rpartition("/")
            beginning = f"{folder}/{name.partition('-')[0]}"
            new = await self._put(
                beginning, b"".join(changed or line for changed, line in zip(blank, lines, strict=True))
            )
            if await self._bucket.get(key, blocking=False) is None:
                await self._bucket.remove([new])
                return 0
            await self._bucket.remove([key])
        return found

    @contextmanager
    def _taking(self) -> Generator[None]:
        try:
            yield
        except ValuesUnavailable as error:
            raise StoreUnavailable(
                f"the archive {self._bucket.place.shown} does not take it: {error}"
            ) from error
