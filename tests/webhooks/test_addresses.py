"""Which addresses may be sent to, which URLs are understood, and what the configuration may allow."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.address import allowed, why_refused
from windlass.core.webhook import check_target
from windlass.errors import InvalidOption

REFUSED = {
    "0.0.0.0": "unspecified",  # noqa: S104
    "0.1.2.3": "not public",
    "10.1.2.3": "not public",
    "100.64.0.1": "not public",
    "100.100.100.200": "not public",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "not public",
    "169.254.169.254": "link-local",
    "172.16.0.1": "not public",
    "172.31.255.255": "not public",
    "192.0.0.192": "not public",
    "192.0.2.1": "not public",
    "192.168.1.1": "not public",
    "198.18.0.1": "not public",
    "203.0.113.7": "not public",
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "240.0.0.1": "not public",
    "255.255.255.255": "not public",
    "::": "unspecified",
    "::1": "loopback",
    "::127.0.0.1": "not public",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:10.0.0.1": "not public",
    "::ffff:169.254.169.254": "link-local",
    "::ffff:0:127.0.0.1": "not public",
    "64:ff9b::127.0.0.1": "not public",
    "64:ff9b::8.8.8.8": "not public",
    "64:ff9b:1::10.0.0.1": "not public",
    "100::1": "not public",
    "2001::1": "not public",
    "2001:db8::1": "not public",
    "2002:7f00:1::": "not public",
    "2002:a9fe:a9fe::": "not public",
    "3fff::1": "not public",
    "fc00::1": "not public",
    "fd00:ec2::254": "not public",
    "fe80::1": "link-local",
    "fe80::1%eth0": "an address with a zone",
    "2606:4700::1111%lo": "an address with a zone",
    "fec0::1": "not public",
    "ff02::1": "multicast",
    "localhost": "not an address",
    "": "not an address",
    "0x7f.1": "not an address",
}


@pytest.mark.parametrize(("address", "why"), REFUSED.items())
def test_what_is_not_public_is_refused(address: str, why: str) -> None:
    assert why_refused(address) == why


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"]
)
def test_what_is_public_is_not(address: str) -> None:
    assert why_refused(address) == ""


@given(st.ip_addresses(v=4))
def test_no_form_of_an_address_gets_by_where_the_address_does_not(address: ipaddress.IPv4Address) -> None:
    mapped = f"::ffff:{address}"
    assert why_refused(mapped) == why_refused(str(address))
    for wrapped in (
        f"64:ff9b::{address}",
        f"::{address}",
        str(ipaddress.IPv6Address((0x2002 << 112) | (int(address) << 80))),
    ):
        assert why_refused(wrapped)


@given(st.ip_addresses())
def test_nothing_is_let_through_that_python_does_not_call_global(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not why_refused(str(address)):
        inner = getattr(address, "ipv4_mapped", None) or address
        assert inner.is_global
        assert not any((inner.is_private, inner.is_multicast, inner.is_loopback, inner.is_reserved))


def test_the_configuration_allows_networks_addresses_and_names() -> None:
    more = allowed(["10.0.0.0/8", "127.0.0.1", "::1", " Hooks.Internal "])
    for address in ("10.2.3.4", "127.0.0.1", "::1", "::ffff:10.9.9.9"):
        assert why_refused(address, more) == ""
    for address in ("127.0.0.2", "192.168.0.1", "169.254.169.254"):
        assert why_refused(address, more) != ""
    assert more.names("hooks.internal")
    assert not more.names("evil.hooks.internal")


def test_a_network_that_is_allowed_opens_no_address_that_hides_another_inside() -> None:
    assert why_refused("2002:7f00:1::", allowed(["2002::/16"])) == "loopback"
    assert why_refused("64:ff9b::10.0.0.1", allowed(["64:ff9b::/96"])) == "not public"


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "10.0.0", "http://x", "a b", "*", "*.internal", "", "10.0.0.0/33", 7]
)
def test_what_cannot_be_allowed_is_refused(entry: object) -> None:
    with pytest.raises(InvalidOption, match="webhook_allow"):
        allowed([entry])


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("https://example.com", "https://example.com", "/"),
        ("https://Example.COM:443/a?b=c", "https://example.com", "/a?b=c"),
        ("https://example.com:8443/", "https://example.com:8443", "/"),
        ("http://127.0.0.1:80/x", "http://127.0.0.1", "/x"),
        ("https://[2606:4700::1111]:8443/x", "https://[2606:4700::1111]:8443", "/x"),
        ("https://example.com?q=1", "https://example.com", "/?q=1"),
    ],
)
def test_urls_are_taken_apart(url: str, origin: str, path: str) -> None:
    target = check_target(url)
    assert (target.origin, target.path) == (origin, path)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com",
        "file:///etc/passwd",
        "gopher://127.0.0.1",
        "//example.org/x",
        "example.org/hook",
        "https://",
        "https:///x",
        "https://user@example.com/",
        "https://user:pw@127.0.0.1@example.com/",
        "https://example.com\\@127.0.0.1/",
        "https://example.com#@127.0.0.1/",
        "https://example.com/ x",
        "https://example.com/\r\nhost: evil",
        "https://example.com/\x00",
        "https://exämple.com/",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:99999999/",
        "https://[fe80::1%25eth0]/",
        "https://-x.com/",
        "https://a..b/",
        "https://" + "a" * 70 + ".com/",
        "https://example.com/" + "a" * 2_000,
        7,
        None,
    ],
)
def test_urls_that_could_be_understood_in_two_ways_are_refused_without_being_repeated(url: object) -> None:
    with pytest.raises(InvalidOption, match="callback") as refusal:
        check_target(url, name="callback")
    if isinstance(url, str) and len(url) > 12:
        assert url not in str(refusal.value)
