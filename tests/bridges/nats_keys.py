"""Keys and tokens of NATS, as its tool nsc makes them: an operator, an account and a user."""

import json
import secrets
import time
from base64 import b32encode, urlsafe_b64encode
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_OPERATOR, _ACCOUNT, _USER, _SEED = 14 << 3, 0, 20 << 3, 18 << 3
_NO_LIMITS = dict.fromkeys(
    (
        *("subs", "data", "payload", "imports", "exports", "conn", "leaf"),
        *("mem_storage", "disk_storage", "streams", "consumer"),
    ),
    -1,
)
_NO_STREAMS = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), 0)


class Operated(NamedTuple):
    """Settings of a server that knows the operator's account, and the user's file."""

    settings: str
    creds: Path


class _Key:
    def __init__(self, kind: int) -> None:
        self._raw = secrets.token_bytes(32)
        self._key = Ed25519PrivateKey.from_private_bytes(self._raw)
        self._kind = kind
        self.public = _checked(bytes([kind]) + self._key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        return _checked(bytes([_SEED | self._kind >> 5, (self._kind & 31) << 3]) + self._raw)

    def signs(self, subject: str, claims: dict[str, object]) -> str:
        """A token that says something of another key."""
        head = _part({"typ": "JWT", "alg": "ed25519-nkey"})
        told = {"jti": secrets.token_hex(8), "iat": int(time.time()), "iss": self.public, "name": "test"}
        body = _part({**told, "sub": subject, "nats": {**claims, "version": 2}})
        signed = f"{head}.{body}"
        return f"{signed}.{_base64(self._key.sign(signed.encode()))}"


def operated(folder: Path) -> Operated:
    """Make them."""
    operator, system, account, user = _Key(_OPERATOR), _Key(_ACCOUNT), _Key(_ACCOUNT), _Key(_USER)
    (folder / "operator.jwt").write_text(operator.signs(operator.public, {"type": "operator"}))
    limits = {**_NO_LIMITS, "wildcards": True}
    of_account = operator.signs(account.public, {"type": "account", "limits": limits})
    of_system = operator.signs(system.public, {"type": "account", "limits": {**limits, **_NO_STREAMS}})
    no_limits = {"subs": -1, "data": -1, "payload": -1}
    of_user = account.signs(user.public, {"type": "user", "pub": {}, "sub": {}, **no_limits})
    creds = folder / "user.creds"
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    settings = (
        f'operator: "{folder / "operator.jwt"}"\nresolver: MEMORY\n'
        f"system_account: {system.public}\n"
        f"resolver_preload: {{ {account.public}: {of_account}, {system.public}: {of_system} }}\n"
    )
    return Operated(settings, creds)


def _checked(raw: bytes) -> str:
    """With a checksum behind it, in letters: the CRC-16 of XMODEM."""
    crc = 0
    for byte in raw:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return b32encode(raw + crc.to_bytes(2, "little")).decode().rstrip("=")


def _part(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
