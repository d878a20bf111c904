"""The dashboard: files that were built into `windlass/api/static`, if they are there.

They tell nothing of the app: its pages ask the API for what they show, with the key of the person who looks.
"""

import gzip
import hashlib
import html
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import Cookie
from litestar.params import FromPath

from windlass.api.access import OPEN
from windlass.api.context import SERVER_STATE, prefix_of
from windlass.api.gate import address_of
from windlass.api.problems import not_found
from windlass.api.routes.session import login_cookie
from windlass.api.server_state import ServerState

FOLDER = Path(__file__).parent.parent / "static"
INDEX = "index.html"
_TYPES: Mapping[str, str] = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_HASHED = re.compile(r"[.-][A-Za-z0-9_-]{8,}\.[a-z0-9]+$")
"""Names that change with what is in the file."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGES = ("jobs", "queues", "dead", "schedules", "flows", "bridges", "workers", "tasks", "history", "docs")
"""What the dashboard shows beside its first page, as `web/src/shell/Screen.svelte` names them. Any other path
is a slip, also one that other servers have ("schema"), and is told as such.
"""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is served."""

    body: bytes
    packed: bytes
    """The same as gzip; empty where that gains nothing."""
    type: str
    headers: Mapping[str, str]


@cache
def files(folder: Path = FOLDER) -> Mapping[str, File]:
    """Every file that is served, by its path. What is not here cannot be asked for, however it is spelled."""
    if not folder.is_dir():
        return {}
    return {
        path.relative_to(folder).as_posix(): _file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in _TYPES
    }


def _file(path: Path) -> File:
    hashed = path.parent.name == "assets" and _HASHED.search(path.name) is not None
    return _made(path.read_bytes(), path.name, hashed=hashed)


def _made(body: bytes, name: str, *, hashed: bool = False) -> File:
    packed = gzip.compress(body, 9, mtime=0)
    return File(
        body=body,
        packed=packed if len(packed) < len(body) else b"",
        type=_TYPES[Path(name).suffix],
        headers={
            "cache-control": "public, max-age=31536000, immutable" if hashed else "no-cache",
            "content-security-policy": _POLICY,
            "vary": "accept-encoding",
            "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        },
    )


@get(["/", "/{path:path}"], guards=[OPEN], include_in_schema=False)
async def page(request: Request[Any, Any, Any], path: FromPath[str] = "/") -> Response[bytes]:
    """A file of the dashboard; its page for whatever else it shows under a path of its own."""
    name = path.lstrip("/")
    if "token" in request.query_params:
        return await _with_cookie(request, name)
    found = files().get(name or INDEX)
    if found is None and _may_be_a_page(name):
        found = files().get(INDEX)
    if found is not None and prefix_of(request.scope) and found is files().get(INDEX):
        found = _under(prefix_of(request.scope), found.body)
    if found is None:
        raise not_found(
            f"there is nothing at {path[:200]}; the API is under /v1, its description at /openapi.json"
            if files()
            else "this installation has no dashboard (in a checkout: make web); the API is under /v1"
        )
    if request.headers.get("if-none-match") == found.headers["etag"]:
        return Response(b"", status_code=304, headers=dict(found.headers), media_type=found.type)
    if found.packed and _takes_gzip(request.headers.get("accept-encoding", "")):
        headers = {**found.headers, "content-encoding": "gzip"}
        return Response(found.packed, headers=headers, media_type=found.type)
    return Response(found.body, headers=dict(found.headers), media_type=found.type)


@lru_cache(maxsize=16)
def _under(prefix: str, index: bytes) -> File:
    """The page as it is served under a path: what it loads is there, and its script reads the path in it."""
    path = html.escape(quote(prefix))
    return _made(index.replace(b'="/', f'="{path}/'.encode()), INDEX)


async def _with_cookie(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    """Take the token of a server without keys out of the address, and give its browser a cookie instead."""
    server_state: ServerState = request.app.state[SERVER_STATE]
    rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
    cookies: list[Cookie] = []
    if await server_state.callers.wants_token():
        login = await server_state.callers.log_in(request.query_params["token"], address_of(request.scope))
        cookies = [] if login is None else [login_cookie(request.scope, server_state.options, *login)]
    # One slash: a browser would take what follows two for a host.
    to = f"{prefix_of(request.scope)}/{quote(name)}" + (f"?{urlencode(rest)}" if rest else "")
    return Response(
        b"", status_code=303, headers={"location": to, "cache-control": "no-store"}, cookies=cookies
    )


def _may_be_a_page(name: str) -> bool:
    """Whether the dashboard has something to show there; the names behind the first may have dots."""
    parts = name.split("/")
    return parts[0] in PAGES and ".." not in parts


def _takes_gzip(accepted: str) -> bool:
    wanted = (each.partition(";") for each in accepted.lower().split(","))
    return any(
        name.strip() in ("gzip", "*") and weight.strip() not in ("q=0", "q=0.0") for name, _, weight in wanted
    )


ROUTES = (page,)
