"""Pages: listings come with a cursor to go on from; how they are asked for is the same everywhere.

Cursors are sealed (`Context.sealed`, `Context.opened`), each for the listing that it came from (`listing`).
It is refused for another listing, another filter, and a caller that sees other queues or lanes.
"""

from typing import Annotated, Generic, TypeVar

import msgspec
from litestar.params import QueryParameter

from windlass.api.access import Caller
from windlass.core.query import JobQuery

T = TypeVar("T")

MOST = 1_000
USUAL = 100


def listing(caller: Caller, what: str, about: JobQuery | str = "") -> str:
    """What a cursor is good for: one listing, under one filter, of what one sight shows."""
    return msgspec.json.encode([what, about, caller.queues, caller.lanes], order="deterministic").decode()


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a listing. It may be short, even empty, and still have a cursor."""

    items: list[T]
    cursor: str | None = None
    """Where the next page begins, as the parameter `cursor`; none at the end."""


Limit = Annotated[
    int, QueryParameter(name="limit", ge=1, le=MOST, description="Items on a page, at the most.")
]
"""The type of a route's parameter `limit`, with `USUAL` as its default."""
After = Annotated[
    str | None,
    QueryParameter(
        name="cursor", max_length=8_000, description="Where to go on: the cursor of the page before."
    ),
]
"""The type of a route's parameter `cursor`."""
