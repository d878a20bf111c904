"""Logging in with a file of credentials: who one is (a JWT), and a seed that signs for it."""

from base64 import b32decode, b64encode
from binascii import Error as NotBase32
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from windlass.errors import InvalidOption

_JWT = "BEGIN NATS USER JWT"
_SEED = "BEGIN USER NKEY SEED"
_OF_A_USER = b"\x95\x00"
"""How a decoded seed begins: that it is one, and of a user."""


class Credentials(NamedTuple):
    """What the client of NATS asks for when it logs in."""

    jwt: Callable[[], bytearray]
    sign: Callable[[str], bytes]


def credentials(file: str) -> Credentials:
    """Read a file as `nsc` writes it. `InvalidOption`: it is none; its content is never in the message."""
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"creds={file} cannot be read: {error}") from None
    jwt, seed = _behind(_JWT, lines), _behind(_SEED, lines)
    if not jwt or not seed:
        raise InvalidOption(f"creds={file} is no file of credentials as nsc writes it")
    key = _key(seed, file)

    def sign(nonce: str) -> bytes:
        return b64encode(key.sign(nonce.encode()))

    return Credentials(jwt=lambda: bytearray(jwt.encode()), sign=sign)


def _behind(mark: str, lines: list[str]) -> str:
    return next((line.strip() for before, line in pairwise(lines) if mark in before), "")


def _key(seed: str, file: str) -> Ed25519PrivateKey:
    """The key of a seed: two bytes for what it is of, 32 of the key, two of a checksum."""
    try:
        raw = b32decode(seed + "=" * (-len(seed) % 8))
    except NotBase32:
        raw = b""
    if len(raw) != 36 or not raw.startswith(_OF_A_USER):
        raise InvalidOption(f"creds={file} has no seed of a user")
    return Ed25519PrivateKey.from_private_bytes(raw[2:34])
