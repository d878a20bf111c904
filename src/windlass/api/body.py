"""Bodies: JSON, read straight into the type that a route declares, with the field named that does not fit.

The framework would decode to plain objects first and convert these: twice the time, and the payload of a job
would no longer be the bytes that its producer sent.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from litestar import Request

from windlass.api.problems import Refusal
from windlass.core.spelling import hint

_AT = re.compile(r"(?s)(.*) - at `(\$.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


class JsonRequest(Request[Any, Any, Any]):
    """A request whose body is read as its route wants it."""

    async def json(self) -> Any:
        """The body as the type of the route's `data`; 400 and 415 name what is wrong."""
        said = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if said != "application/json" and not said.endswith("+json"):
            raise Refusal(
                415, "unsupported-media-type", "the body must be JSON: send Content-Type: application/json"
            )
        field = getattr(self.route_handler, "parsed_data_field", None)
        return _read(Any if field is None else field.annotation, await self.body())


def _read(kind: Any, body: bytes) -> Any:
    try:
        return _decoder(kind)(body)
    except msgspec.ValidationError as error:
        field_name, detail = _located(str(error))
        if (unknown := _UNKNOWN.fullmatch(detail)) and field_name == unknown[1]:
            detail = _no_such_field(field_name, kind)
        raise Refusal(400, "invalid", detail, field=field_name) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, "invalid", f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Refusal(400, "invalid", "the body is nested too deeply") from None


@lru_cache(maxsize=512)
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    """Reads JSON as a type; made once for each type."""
    return msgspec.json.Decoder(kind).decode


def _no_such_field(name: str, kind: Any) -> str:
    """What to say of a field that the body as a whole does not have."""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    return f'there is no field "{name[:100]}"; {hint(name, known, "fields are")}'


def _located(text: str) -> tuple[str, str]:
    """The field that an error of the decoder is about, as `jobs[3].priority`, and what is wrong with it."""
    found = _AT.fullmatch(text)
    detail, path = (text, "$") if found is None else found.groups()
    field = path.removeprefix("$").removeprefix(".")
    for pattern in (_UNKNOWN, _MISSING):
        if named := pattern.fullmatch(detail):
            field = f"{field}.{named[1]}" if field else named[1]
    return field or "body", detail
