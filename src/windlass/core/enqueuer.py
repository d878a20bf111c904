"""Who enqueued a job: a header that producers add where history is kept. Pure."""

from collections.abc import Mapping

import msgspec

from windlass.core.job import NewJob
from windlass.core.names import MAX_HEADERS

BY = "windlass-by"
"""The header."""


class Enqueuer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process that enqueued, and on whose word."""

    app: str = ""
    host: str = ""
    key: str = ""
    """The API key of the caller, by its name; empty: it did not come over HTTP."""


NOBODY = Enqueuer()
"""It is not known who it was."""


def header_of(enqueuer: Enqueuer) -> Mapping[str, str]:
    """The header that says so."""
    return {BY: msgspec.json.encode(enqueuer).decode()}


def enqueuer_in(headers: Mapping[str, str]) -> Enqueuer:
    """Who enqueued the job with these headers; a header that cannot be read says nothing."""
    try:
        return msgspec.json.decode(headers.get(BY, "{}"), type=Enqueuer)
    except msgspec.MsgspecError:
        return NOBODY


def with_header(headers: Mapping[str, str], added: Mapping[str, str]) -> Mapping[str, str]:
    """Headers with that of the enqueuer, where there is room for it."""
    if not added or (len(headers) >= MAX_HEADERS and BY not in headers):
        return headers
    return {**headers, **added}


def without_header(job: NewJob) -> NewJob:
    """A job that does not say who enqueued it: one that is kept, to be enqueued by others."""
    if BY not in job.headers:
        return job
    headers = {name: value for name, value in job.headers.items() if name != BY}
    return msgspec.structs.replace(job, headers=headers)
