"""Hosts: names and addresses, as a Host header or `--host` has them."""

import ipaddress
from functools import lru_cache

LOCAL_NAMES = frozenset(("localhost", "localhost.localdomain", "ip6-localhost"))


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


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
    name = host_name(host) if host.count(":") < 2 else host.strip("[]").lower()
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)
