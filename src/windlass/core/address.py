"""Addresses that a program may be sent to by somebody else's word: those of the public Internet, and what the
configuration allows. Pure: names are resolved elsewhere, and every address that they have is judged here.

The author of a webhook's URL could otherwise make workers talk to what only they can reach: a database
on loopback, a router, the metadata service of a cloud. So an address is refused unless it is known to be
public; one that carries another inside (IPv6 forms of IPv4, 6to4, Teredo, NAT64) is judged by that, too.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from windlass.core.option import shown
from windlass.errors import InvalidOption

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

MOST_ALLOWED = 100

_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
"""All that was ever given out; the rest is refused, whatever it may come to mean."""
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_LAST_32 = (1 << 32) - 1
_REFUSED_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' NAT; a cloud's metadata service at 100.100.100.200
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's host agent, although the address is public
        "169.254.0.0/16",  # link-local; metadata services at 169.254.169.254
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_REFUSED_6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocols, with Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)


class Allowed(msgspec.Struct, frozen=True):
    """What the configuration allows beside the public Internet."""

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()
    """Names that may resolve to any address, and be spoken to without TLS."""

    def names(self, host: str) -> bool:
        """Whether a host is allowed by its name."""
        return host.rstrip(".") in self.hosts

    def holds(self, address: Address) -> bool:
        """Whether an address is in a network that is allowed."""
        return any(address in network for network in self.networks if network.version == address.version)


NOTHING_MORE = Allowed()


def allowed(entries: Iterable[object]) -> Allowed:
    """Read what is allowed: networks ("10.0.0.0/8"), addresses, names of hosts."""
    networks: list[Network] = []
    hosts: set[str] = set()
    for count, entry in enumerate(entries):
        if not isinstance(entry, str) or count >= MOST_ALLOWED:
            raise InvalidOption(
                f'webhook_allow takes up to {MOST_ALLOWED} texts such as "10.0.0.0/8" or "hooks.internal", '
                f"not {shown(entry)}"
            )
        text = entry.strip().lower()
        try:
            networks.append(ipaddress.ip_network(text.strip("[]")))
        except ValueError as error:
            if "/" in text or not is_host(text) or _NUMBERS.fullmatch(text):
                raise InvalidOption(
                    f'webhook_allow: {shown(entry)} is no network ("10.0.0.0/8"), address or name of a host: '
                    f"{error}"
                ) from None
            hosts.add(text.rstrip("."))
    return Allowed(tuple(networks), frozenset(hosts))


_NUMBERS = re.compile(r"(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+))*")


def is_host(text: str) -> bool:
    """Whether a text can be the name of a host (in lower case); an address in digits and dots can, too."""
    return _HOST.fullmatch(text.rstrip(".")) is not None


def why_refused(text: str, more: Allowed = NOTHING_MORE) -> str:
    """Why an address may not be connected to, in a word; empty: it may. What cannot be read is refused."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "not an address"
    if getattr(address, "scope_id", None):
        return "an address with a zone"
    return next((why for each in _with_inner(address) if (why := _judged(each, more))), "")


def _with_inner(address: Address) -> Iterator[Address]:
    """An address, and those that it carries: a router or a kernel would unwrap them."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        # The kernel connects to the inner address: it alone counts.
        yield address.ipv4_mapped
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    plain = address.is_loopback or address.is_unspecified  # ::1 and :: carry nothing
    if not plain and any(address in network for network in (*_NAT64, _COMPATIBLE)):
        yield ipaddress.IPv4Address(int(address) & _LAST_32)


def _judged(address: Address, more: Allowed) -> str:
    if more.holds(address):
        return ""
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if isinstance(address, ipaddress.IPv4Address):
        refused = any(address in network for network in _REFUSED_4)
    else:
        refused = address not in _PUBLIC_6 or any(address in network for network in _REFUSED_6)
    # Both lists: what one Python version does not know of, the other may.
    return "not public" if refused or not address.is_global else ""
