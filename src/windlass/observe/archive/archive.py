"""The protocol of an archive, and which one a URL names.

file:///var/lib/shop/dead.jsonl     JSON lines; the file rotates
…?rotate=64MiB&keep=30              at that size, and so many rotated files; all are kept unless said
s3://bucket/prefix                  object storage, also gs:// and az://, with the options of `values`
history                             a table in the database of the history
history?keep=365d                   for so long; for ever unless said
"""

import re
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from windlass.core.duration import micros
from windlass.core.units import Micros
from windlass.errors import InvalidOption
from windlass.observe.archive.entry import Entry
from windlass.values import place as buckets

ROTATE = 64 * 1024 * 1024
"""Bytes at which a file is rotated."""
_SIZE = re.compile(r"(\d{1,12})\s*(B|KB|KiB|MB|MiB|GB|GiB)?")
_UNITS = {"B": 1, "KB": 1_000, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}


class Archive(Protocol):
    """Keeps the traces of dead letters."""

    async def write(self, entries: Sequence[Entry]) -> None:
        """Keep entries. When it returns they outlast this process and its machine; only then are the dead
        letters removed. What was written before may come again, under the same id. `StoreUnavailable`: it
        does not take them, and nothing may be removed.
        """
        ...

    async def forget(self, namespace: str, tag: str) -> int:
        """Blank what entries with a tag hold of a person (arguments, headers, error). How many held
        something. That a job was there, and who removed it, stays.
        """
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class ArchiveUrl(msgspec.Struct, frozen=True, kw_only=True):
    """Where the archive is, read from its URL."""

    path: str = ""
    """Of a file."""
    bucket: buckets.StorageUrl | None = None
    """In object storage. With neither: in the history."""
    rotate: int = ROTATE
    keep_files: int | None = None
    keep: Micros | None = None


def read_url(url: str) -> ArchiveUrl:
    """Read a URL; `InvalidOption` says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme in ("s3", "gs", "az"):
        return ArchiveUrl(bucket=buckets.read_url(url, "archive"))
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not parts.scheme and parts.path == "history":
        keep = given.pop("keep", None)
        _refuse_rest(given, "keep")
        return ArchiveUrl(keep=None if keep is None else micros(keep, name="keep"))
    if parts.scheme != "file" or parts.netloc or len(parts.path) < 2 or parts.path.endswith("/"):
        raise InvalidOption(
            "an archive is a file, such as file:///var/lib/shop/dead.jsonl, object storage, such as "
            's3://bucket/prefix, or "history": the database of the history'
        )
    rotate, keep = given.pop("rotate", None), given.pop("keep", None)
    _refuse_rest(given, "rotate, keep")
    return ArchiveUrl(
        path=unquote(parts.path),
        rotate=ROTATE if rotate is None else _size(rotate),
        keep_files=None if keep is None else _count(keep),
    )


def _refuse_rest(given: dict[str, str], known: str) -> None:
    if given:
        raise InvalidOption(f'an archive has no option "{next(iter(given))}"; options: {known}')


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(found[1]) * _UNITS[found[2] or "B"]
    if not size:
        raise InvalidOption(f'rotate says at which size a file is rotated, such as 64MiB, not "{text}"')
    return size


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise InvalidOption(f'keep says how many rotated files are kept, such as 30, not "{text}"')
    return int(text)


def in_history(url: str) -> bool:
    """Whether a URL names the database of the history."""
    place = read_url(url)
    return not place.path and place.bucket is None


def check_archive_url(url: str) -> str:
    """Refuse a URL that names no archive."""
    read_url(url)
    return url


async def open_archive(url: str, history: str | None) -> Archive:
    """Open what a URL names. `history` is where the app keeps its history."""
    place = read_url(url)
    if place.path:
        from windlass.observe.archive.file import FileArchive  # noqa: PLC0415 - only who uses it needs it

        return FileArchive(place)
    if place.bucket is not None:
        try:
            from windlass.observe.archive.objects import ObjectArchive  # noqa: PLC0415
        except ImportError as missing:  # of a module of ours, which says it of the setting `values`
            raise InvalidOption(
                f"an archive in object storage needs the package {missing.name}: pip install "
                "'windlass-queue[values]'"
            ) from missing

        return ObjectArchive(place.bucket)
    if history is None:
        raise InvalidOption('archive="history" needs a history: set history=, or name a file')
    from windlass.observe.archive.database import DatabaseArchive  # noqa: PLC0415

    return await DatabaseArchive.open(history, place.keep)
