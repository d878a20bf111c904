"""Parameters of a query: a name that a route does not know is a slip, and is refused rather than ignored."""

from functools import lru_cache
from typing import Any

from litestar import Request
from litestar.enums import ParamType
from litestar.params import ParameterKwarg

from windlass.api.problems import Refusal

_STRICT = "/v1/"


async def refuse_unknown(request: Request[Any, Any, Any]) -> None:
    """Refuse a query that the route would not read."""
    if not request.scope["query_string"] or not request.scope["path"].startswith(_STRICT):
        return
    known = _known(request.route_handler)
    for name in request.query_params:
        if name not in known:
            raise Refusal(
                400,
                "invalid",
                f'there is no parameter "{name[:100]}"; parameters are: {", ".join(sorted(known)) or "none"}',
                field=name[:100],
            )


@lru_cache(maxsize=1_024)
def _known(handler: Any) -> frozenset[str]:
    found: set[str] = set()
    provided = handler.resolve_dependencies()
    for name, field in handler.parsed_fn_signature.parameters.items():
        if name in provided:
            continue  # the desk: what the server provides is nobody's to give
        kwarg = field.kwarg_definition
        if isinstance(kwarg, ParameterKwarg) and kwarg.param_type is ParamType.QUERY:
            found.add(kwarg.name or name)
    return frozenset(found)
