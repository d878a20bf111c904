"""Certificates for tests, made by openssl in a folder: an authority, a server on localhost, and a client."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Certificates(NamedTuple):
    """Files."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path

    def settings(self, port: int) -> tuple[str, ...]:
        """Of a server that speaks TLS on a port, and wants to see a certificate."""
        return (
            *("--tls-port", str(port), "--tls-cert-file", str(self.server)),
            *("--tls-key-file", str(self.server_key), "--tls-ca-cert-file", str(self.authority)),
        )

    @property
    def options(self) -> str:
        """Of a URL."""
        mine = f"ssl_certfile={self.client}&ssl_keyfile={self.client_key}"
        return f"ssl_ca_certs={self.authority}&{mine}"


def certificates(folder: Path) -> Certificates:
    """Make them. The server's is for the name localhost, and for no address."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by openssl: install the package openssl")
    authority, key = folder / "ca.crt", folder / "ca.key"
    elliptic = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    # From Python 3.13 on a client refuses an authority that does not say what its key is for.
    signs = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl("req", "-x509", *elliptic, *signs, "-keyout", key, "-out", authority, "-subj", "/CN=authority")
    for name, extension in (
        ("server", "subjectAltName=DNS:localhost"),
        ("client", "keyUsage=digitalSignature"),
    ):
        asked, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
        extensions.write_text(f"{extension}\n")
        _openssl("req", *elliptic, "-keyout", folder / f"{name}.key", "-out", asked, "-subj", f"/CN={name}")
        signed = ["-in", asked, "-out", folder / f"{name}.crt", "-extfile", extensions]
        _openssl("x509", "-req", "-CA", authority, "-CAkey", key, "-CAcreateserial", *signed)
    return Certificates(
        authority,
        folder / "server.crt",
        folder / "server.key",
        folder / "client.crt",
        folder / "client.key",
    )


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
