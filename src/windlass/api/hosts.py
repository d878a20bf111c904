"""Hosts: names and addresses, as a Host header or `--host` has them."""

import ipaddress
import re
from functools import lru_cache

LOCAL_NAMES = frozenset(("localhost", "localhost.localdomain", "ip6-localhost"))
_HOST = re.compile(r"(?:\[(?P<inner>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z_.-]+))(?::[0-9]{1,5})?")


@lru_cache(maxsize=256)
def host_name(host: str) -> str | None:
    """The name or address in a Host header, without its port; None if the header is neither."""
    found = _HOST.fullmatch(host)
    if found is None:
        return None
    if found["inner"] is not None:
        return found["inner"].lower() if is_address(found["inner"]) else None
    return found["name"].lower().removesuffix(".") or None


@lru_cache(maxsize=256)
def is_address(name: str) -> bool:
    """Whether a host is an address rather than a name. Remembered, since every request asks."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    name = host.strip("[]").lower()
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)
