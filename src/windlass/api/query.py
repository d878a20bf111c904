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
    """The parameters of a route, and of what is provided for it. What is provided (the context) is none."""
    provided = handler.resolve_dependencies()
    used = [provided[name] for name in handler.parsed_fn_signature.parameters if name in provided]
    signatures = [handler.parsed_fn_signature, *(provider.parsed_fn_signature for provider in used)]
    return frozenset(
        kwarg.name or name
        for signature in signatures
        for name, field in signature.parameters.items()
        if name not in provided
        and isinstance(kwarg := field.kwarg_definition, ParameterKwarg)
        and kwarg.param_type is ParamType.QUERY
    )
