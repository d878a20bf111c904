"""The calls to object storage, from blocking and from async code, and what their errors mean."""

import asyncio
import contextlib
import heapq
import os
from collections.abc import Callable, Generator, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from windlass.errors import ValuesError, ValuesUnavailable
from windlass.extras import lacking
from windlass.values.names import KEPT
from windlass.values.place import StorageUrl

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store
except ModuleNotFoundError as missing:
    raise lacking("values=", missing, "windlass-queue[values]") from missing

_T = TypeVar("_T")

ANSWERS_WITHIN = timedelta(seconds=60)
"""For one object; the largest have tens of megabytes."""
CONNECTS_WITHIN = timedelta(seconds=5)
TRIES = 2
"""Besides the first. Those who wait for object storage try again for longer, and say so."""
TRIES_FOR = timedelta(seconds=10)
SIGNED_FOR = timedelta(minutes=5)
"""How long a signed link leads to its object."""
_CHUNK = 1_000
_LONGEST_REASON = 300

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
"""What S3, Azure and Google say where a bucket is not there; for an object they use other words."""

_used_by: int | None = None
"""The process that has used the library: its threads are not there in the child of a fork."""


class Stored(msgspec.Struct, frozen=True):
    """An object, as listings show it."""

    key: str
    at: datetime
    """When it was put, by the clock of the bucket."""

    @property
    def is_mark(self) -> bool:
        """Whether it says which result was the job's, and is none itself."""
        return self.key.endswith(f"/{KEPT}")


class Bucket:
    """A bucket or a folder. Any thread and any event loop may use it.

    With `blocking` a call never suspends its coroutine, and waits in the caller's thread.
    """

    def __init__(self, place: StorageUrl) -> None:
        self.place = place
        self._folder = Path(place.prefix) if place.kind == "file" else None
        self._opened: Any = None

    async def put(self, key: str, document: bytes, *, blocking: bool) -> bool:
        """Put an object that was not there; False: there is one of this name already."""
        # In one piece: what is put in parts is not create-only.
        how: dict[str, Any] = {"mode": "create", "use_multipart": False}
        with self._asking(), _already_there() as there:
            if blocking:
                obstore.put(self._store(), key, document, **how)
            else:
                await obstore.put_async(self._store(), key, document, **how)
        if self._folder is not None:
            # Also an object that was there before: its writer may have died before it was synced.
            gone = (FileNotFoundError,) if there else ()
            with self._asking(), contextlib.suppress(*gone):
                await _called(_sync, self._folder, key, blocking=blocking)
        return not there

    async def get(self, key: str, *, blocking: bool) -> bytes | None:
        """An object; None: there is none."""
        with self._asking():
            try:
                if blocking:
                    return bytes(obstore.get(self._store(), key).bytes())
                return bytes(await (await obstore.get_async(self._store(), key)).bytes_async())
            except FileNotFoundError as error:
                if self._is_gone(str(error)):
                    raise
                return None

    def _is_gone(self, said: str) -> bool:
        """Whether it is the bucket or the folder that is not there, and not the object."""
        if self._folder is not None:
            return not self._folder.is_dir()
        return any(word in said for word in _NO_BUCKET)

    async def remove(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are gone already count as removed."""
        with self._asking():
            store = self._store()
            for key in keys:
                try:
                    await obstore.delete_async(store, key)
                except FileNotFoundError:
                    continue

    async def page(self, prefix: str, after: str, limit: int) -> list[Stored]:
        """The first objects of a prefix whose names come after a name, in their order."""
        with self._asking():
            stream: Any = obstore.list(  # pyright: ignore[reportUnknownMemberType] - one form needs pyarrow
                self._store(), prefix, offset=after or None, chunk_size=_CHUNK
            )
            found: list[Stored] = []
            async for chunk in stream:
                found += [Stored(each["path"], each["last_modified"]) for each in chunk]
                if self._folder is None and len(found) >= limit:
                    break  # only a folder does not list by name
                found = heapq.nsmallest(limit, found, key=_key_of)
            return found[:limit]

    async def link(self, key: str) -> str | None:
        """A signed link to an object, for a short time; None: this place, or its keys, sign none."""
        if self._folder is not None:
            return None
        with self._asking():
            store = self._store()
        try:
            return await obstore.sign_async(store, "GET", key, SIGNED_FOR)
        except (BaseError, OSError, ValueError):
            return None

    def _store(self) -> Any:
        _refuse_child()
        if self._opened is None:
            self._opened = _opened(self.place)
        elif self._folder is not None and not self._folder.is_dir():
            raise _no_folder(self._folder)  # a put would make it anew
        return self._opened

    @contextlib.contextmanager
    def _asking(self) -> Generator[None]:
        try:
            yield
        except ValuesError:
            raise
        except FileNotFoundError as error:  # of the bucket itself
            raise self._away(error) from None
        except (BaseError, OSError, ValueError) as error:
            raise self._away(error) from None

    def _away(self, error: Exception) -> ValuesUnavailable:
        lines = str(error).strip().splitlines()
        why = lines[0][:_LONGEST_REASON] if lines else type(error).__name__
        return ValuesUnavailable(f"object storage {self.place.shown} does not do it: {why}")


@contextlib.contextmanager
def _already_there() -> Generator[list[bool]]:
    found: list[bool] = []
    try:
        yield found
    except AlreadyExistsError:
        found.append(True)


def _key_of(stored: Stored) -> str:
    return stored.key


def _opened(place: StorageUrl) -> Any:
    if place.kind == "file":
        folder = Path(place.prefix)
        if not folder.parent.is_dir():
            raise _no_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)  # it has what jobs were called with
        return LocalStore(prefix=place.prefix, automatic_cleanup=True)
    endpoint = place.options.get("endpoint", "")
    options: dict[str, Any] = {
        "prefix": place.prefix or None,
        "client_options": {
            "timeout": ANSWERS_WITHIN,
            "connect_timeout": CONNECTS_WITHIN,
            "allow_http": endpoint.startswith("http://"),
        },
        "retry_config": {"max_retries": TRIES, "retry_timeout": TRIES_FOR},
    }
    if endpoint:
        options["endpoint"] = endpoint
    if place.kind == "gs":
        return GCSStore(place.bucket, **options)
    if place.kind == "az":
        if "account" in place.options:
            options["account_name"] = place.options["account"]
        return AzureStore(place.bucket, **options)
    if "region" in place.options:
        options["region"] = place.options["region"]
    return S3Store(place.bucket, **options)


def _no_folder(path: Path) -> FileNotFoundError:
    """Made anew, it would be on another disk than the one that is not there."""
    return FileNotFoundError(f"there is no folder {path}: make it, or mount its file system")


def _refuse_child() -> None:
    """Its library would wait for ever for threads that a fork does not copy."""
    global _used_by  # noqa: PLW0603
    here = os.getpid()
    if _used_by is None:
        _used_by = here
    elif _used_by != here:
        raise ValuesError(
            f"this process was forked from process {_used_by}, which had used object storage before: it "
            "cannot put or read large values. Fork before the first of them, or start the process anew "
            "(multiprocessing: spawn)"
        )


async def _called(call: Callable[..., _T], *args: Any, blocking: bool) -> _T:
    return call(*args) if blocking else await asyncio.to_thread(call, *args)


def _sync(folder: Path, key: str) -> None:
    """What was put in a folder outlasts the machine once its file and the folders above are written."""
    _fsync(folder / key, os.O_RDONLY)
    for above in (folder / key).relative_to(folder).parents:
        _fsync(folder / above, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    file = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
