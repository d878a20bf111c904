"""ClickHouse's engine (chdb) behind as much of its HTTP interface as clickhouse-connect speaks. A program of
its own: `clickhouse_server.py FOLDER_OF_CHDB DATA PORT`. For tests alone: one statement runs at a time.
"""

import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_INSERT = re.compile(rb"\s*(INSERT\s.*?)\s+FORMAT\s+(\w+)\s*\n", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NOT_SETTINGS = frozenset(
    (
        *("query", "database", "default_format", "session_id", "query_id", "client_protocol_version"),
        *("compress", "wait_end_of_query", "buffer_size"),
    )
)
_lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Any

    def do_GET(self) -> None:
        """A statement in the address."""
        self.do_POST()

    def do_POST(self) -> None:
        """A statement in the address or in the body; an insert is followed by its data."""
        said = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("transfer-encoding") == "chunked":
            body = b"".join(iter(self._chunk, b""))
        try:
            with _lock:
                answer, kind = self._run(said, body)
        except Exception as error:  # noqa: BLE001 - whatever the engine says is the answer
            self._answer(500, str(error).encode(), [])
        else:
            self._answer(200, answer, [("X-ClickHouse-Format", kind), ("X-ClickHouse-Timezone", "UTC")])

    def _run(self, said: dict[str, str], body: bytes) -> tuple[bytes, str]:
        settings = {name: value for name, value in said.items() if _is_setting(name)}
        self.engine.query(f"USE {_quoted(said.get('database') or 'default', '`')}")
        for name, value in settings.items():
            self.engine.query(f"SET {name} = {_quoted(value, chr(39))}")
        try:
            return self._ran(said, body)
        finally:
            for name in settings:
                self.engine.query(f"SET {name} = DEFAULT")

    def _ran(self, said: dict[str, str], body: bytes) -> tuple[bytes, str]:
        whole = said["query"].encode() + (b"\n" + body if body else b"") if "query" in said else body
        if insert := _INSERT.match(whole):
            with self.engine.send_insert(insert[1].decode(), insert[2].decode()) as inserter:
                inserter.append(whole[insert.end() :])
                inserter.finish()
            return b"", "Native"
        statement = whole.decode()
        wanted = _FORMAT.search(statement)
        kind = wanted[1] if wanted else said.get("default_format", "TabSeparated")
        parameters = {name[6:]: value for name, value in said.items() if name.startswith("param_")}
        found = self.engine.query(_FORMAT.sub("", statement), kind, params=parameters)
        return bytes(found.bytes() or b""), kind

    def _chunk(self) -> bytes:
        chunk = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return chunk

    def _answer(self, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that it has there
        """Say nothing of each request."""


def _is_setting(name: str) -> bool:
    return name not in _NOT_SETTINGS and not name.startswith("param_") and bool(_NAME.fullmatch(name))


def _quoted(text: str, sign: str) -> str:
    return sign + text.replace("\\", "\\\\").replace(sign, f"\\{sign}") + sign


def main(site: str, data: str, port: str) -> None:
    """Serve, until somebody ends it."""
    sys.path.insert(0, site)
    _Handler.engine = import_module("chdb.session").Session(data)
    ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
