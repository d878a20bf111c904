"""What goes wrong, as RFC 9457 problems that name the field; the one place where errors become statuses."""

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from windlass.api.phrases import phrase
from windlass.errors import (
    BridgeError,
    BridgeUnavailable,
    EnqueueRefused,
    InvalidOption,
    InvalidPayload,
    JobNotFound,
    LeaseLost,
    PayloadTooLarge,
    StoreError,
    Unsupported,
    ValueConflict,
    ValueMissing,
    ValuesError,
    WindlassError,
)

_log = logging.getLogger("windlass.api")

PROBLEM_JSON = "application/problem+json"
CALLER = "windlass_caller"
"""Where the gate leaves the caller in the state of a connection; None: nobody who is known."""
STORE_AWAY = "the store does not answer; try again"
"""What strangers are told. The details, such as where the store is, are for the log and for operators."""
LONGEST = 1_000
"""Characters of a detail: it may repeat what was sent."""


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one field."""

    field: str
    """A name in the body, or that of a parameter; in a list with its place: `jobs[3].priority`."""
    detail: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457)."""

    type: str
    """`urn:windlass:` and a word that programs can rely on."""
    title: str
    status: int
    detail: str
    errors: tuple[FieldProblem, ...] = ()


class Refusal(Exception):
    """A request that is refused: raised by routes, told as a problem."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.field = field
        self.headers = dict(headers or {})


def not_found(detail: str, *, field: str | None = None) -> Refusal:
    """What does not exist, and what the caller's key does not let it see: the two read the same."""
    return Refusal(404, "not-found", detail, field=field)


def invalid(detail: str, *, field: str | None = None) -> Refusal:
    """Something in the request has no meaning."""
    return Refusal(422, "invalid", detail, field=field)


def conflict(detail: str, *, field: str | None = None) -> Refusal:
    """The thing is not in a state that allows it."""
    return Refusal(409, "conflict", detail, field=field)


@contextmanager
def field(name: str) -> Generator[None]:
    """Name the field in what the core refuses, in a `with` around what may refuse it."""
    try:
        yield
    except (InvalidOption, InvalidPayload) as error:
        status, kind = _status(error)
        raise Refusal(status, kind, str(error), field=name) from None


def problem(
    status: int, kind: str, detail: str, errors: Sequence[FieldProblem] = (), headers: Mapping[str, str] = {}
) -> Response[bytes]:
    """The response for a problem."""
    return Response(
        _encoded(status, kind, detail, errors),
        status_code=status,
        headers=dict(headers),
        media_type=PROBLEM_JSON,
    )


def encoded(refusal: Refusal) -> bytes:
    """The body of the answer to a request that is refused."""
    said = refusal.field
    fields = ()
    if said is not None:
        fields = (FieldProblem(field=_shortened(said), detail=_shortened(refusal.detail)),)
    return _encoded(refusal.status, refusal.kind, refusal.detail, fields)


def _encoded(status: int, kind: str, detail: str, errors: Sequence[FieldProblem]) -> bytes:
    return msgspec.json.encode(
        Problem(
            type=f"urn:windlass:{kind}",
            title=phrase(status),
            status=status,
            detail=_shortened(detail),
            errors=tuple(errors),
        )
    )


def on_refusal(_: Request[Any, Any, Any], error: Refusal) -> Response[bytes]:
    """A request that a route refused."""
    return Response(encoded(error), status_code=error.status, headers=error.headers, media_type=PROBLEM_JSON)


def on_windlass_error(request: Request[Any, Any, Any], error: WindlassError) -> Response[bytes]:
    """A request that the service or the store refused."""
    status, kind = _status(error)
    headers = {"retry-after": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("%s: %s", kind, error)
    by_stranger = cast("Any", request.scope)["state"].get(CALLER) is None
    detail = STORE_AWAY if by_stranger and kind == "store-unavailable" else str(error)
    return problem(status, kind, detail, headers=headers)


_STATUSES: Sequence[tuple[type[WindlassError], int, str]] = (
    (PayloadTooLarge, 413, "too-large"),
    (InvalidOption, 422, "invalid"),
    (InvalidPayload, 422, "invalid-payload"),
    (JobNotFound, 404, "not-found"),
    (LeaseLost, 409, "lease-lost"),
    (EnqueueRefused, 422, "refused"),
    (Unsupported, 501, "unsupported"),
    (StoreError, 503, "store-unavailable"),
    (ValueMissing, 404, "not-found"),
    (ValueConflict, 409, "object-storage-conflict"),
    (ValuesError, 503, "object-storage-unavailable"),
    (BridgeUnavailable, 502, "message-broker-unavailable"),
    (BridgeError, 409, "message-broker-refuses"),
)


def _status(error: WindlassError) -> tuple[int, str]:
    for kind, status, word in _STATUSES:
        if isinstance(error, kind):
            return status, word
    return 500, "internal"


def on_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework refuses: no such route, a body or a parameter of another shape."""
    status = error.status_code
    if isinstance(error, ValidationException):
        fields = _fields(error)
        detail = "; ".join(f"{each.field}: {each.detail}" for each in fields) or error.detail
        return problem(400, "invalid", detail, fields)
    if error.detail == _LEFT:
        return problem(400, "invalid", "the body did not come to its end")  # nobody is there to read it
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("unexpected: %s", error.detail, exc_info=error)
        return problem(500, "internal", "the server has failed; its log says where")
    kind = _WORDS.get(status, "invalid")
    detail = error.detail
    if detail == phrase(status) and status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        detail = (
            f"there is no route {request.method} {request.url.path}; openapi.json describes those there are"
        )
    return problem(status, kind, detail, headers=error.headers or {})


_LEFT = "client disconnected prematurely"
"""What the framework takes for a fault of the server: a caller that leaves while it sends."""
_WORDS = {
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    415: "unsupported-media-type",
    429: "too-many-requests",
}


def _fields(error: ValidationException) -> list[FieldProblem]:
    extra = error.extra if isinstance(error.extra, list) else []
    found: list[FieldProblem] = []
    for item in extra:
        if isinstance(item, dict):
            each = cast("dict[str, Any]", item)
            if each.get("key") == "data" and each.get("message") == "'data'":  # a key that was looked for
                found.append(FieldProblem(field="body", detail="there is none: send JSON"))
                continue
            name = str(each.get("key") or each.get("source") or "body")
            name = _AS_SENT.get(name, name)
            found.append(
                FieldProblem(field=_shortened(name), detail=_shortened(str(each.get("message", ""))))
            )
    return found


_AS_SENT = {"states": "state"}
"""The names in requests of what handlers call differently: `state` belongs to the framework there."""


def on_any_error(_: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """A fault of ours: told without its text, which may hold what nobody may read."""
    if isinstance(error, RecursionError):
        return problem(400, "invalid", "the body is nested too deeply")
    _log.error("unexpected %s", type(error).__name__, exc_info=error)
    return problem(500, "internal", "the server has failed; its log says where")


HANDLERS: Mapping[Any, Any] = {
    Refusal: on_refusal,
    WindlassError: on_windlass_error,
    HTTPException: on_http_exception,
    Exception: on_any_error,
}


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
