"""The head of a request: what the server checks besides the parser, and what it tells the application."""

from typing import Any
from urllib.parse import unquote

from windlass.api.problems import Refusal

Headers = list[tuple[bytes, bytes]]

VERSIONS = frozenset(("1.0", "1.1"))
_SCHEMES = frozenset((b"http", b"https"))


def scope_of(method: str, version: str, target: bytes, headers: Headers) -> dict[str, Any]:
    """What an ASGI application is told of a request. 400 for a head that could be read in two ways."""
    if version not in VERSIONS:
        raise _not_http(f"version {version} is not spoken here")
    _check_framing(version, headers)
    authority, path, query = _split(method, target)
    if authority is not None:  # it says which host is asked, whatever the header says
        headers = [*(each for each in headers if each[0] != b"host"), (b"host", authority)]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "method": method,
        "scheme": "http",
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "state": {},
    }


def _check_framing(version: str, headers: Headers) -> None:
    """Refuse every transfer coding but one `chunked`. The parser reads `gzip, chunked`, two such headers, and
    a chunked body of HTTP/1.0. A proxy in front may see another end of the body in each of these.
    """
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and (codings != [b"chunked"] or version != "1.1"):
        raise _not_http("a body is sent with Content-Length or, in HTTP/1.1, as Transfer-Encoding: chunked")


def _split(method: str, target: bytes) -> tuple[bytes | None, bytes, bytes]:
    """The host, the path and the query of a target: `/path?query`, or that behind `http://host:port`."""
    rest, authority = target.partition(b"#")[0], None
    if method == "CONNECT":
        raise _not_http("this server is no proxy")
    if not rest.startswith(b"/") and rest != b"*":
        scheme, _, rest = rest.partition(b"://")
        start = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
        authority, rest = rest[:start].removesuffix(b":"), rest[start:]  # a port may be left empty
        if scheme.lower() not in _SCHEMES or not authority:
            raise _not_http("the target is a path, or begins with http:// and a host")
    path, _, query = rest.partition(b"?")
    return authority, path or b"/", query


def _not_http(detail: str) -> Refusal:
    return Refusal(400, "invalid", f"this is not HTTP/1.1: {detail}")
