"""The address table: what counts as public, and how wrapped addresses are read."""

from __future__ import annotations

import pytest

from orch8_local.handlers.addresses import AddressClass, classify_address, parse_address

CLASSES = [
    ("1.1.1.1", "public"),
    ("8.8.8.8", "public"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("10.0.0.1", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("172.32.0.1", "public"),
    ("192.168.1.1", "private"),
    ("100.64.0.1", "shared"),
    ("100.127.255.255", "shared"),
    ("100.128.0.1", "public"),
    ("169.254.1.1", "link-local"),
    ("169.254.169.254", "cloud metadata"),
    ("100.100.100.200", "cloud metadata"),
    ("fd00:ec2::254", "cloud metadata"),
    ("198.18.0.1", "benchmark"),
    ("198.19.255.255", "benchmark"),
    ("192.0.0.8", "reserved"),
    ("192.0.2.1", "documentation"),
    ("198.51.100.1", "documentation"),
    ("203.0.113.1", "documentation"),
    ("192.88.99.1", "reserved"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "reserved"),
    ("::1", "loopback"),
    ("::", "unspecified"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("fc00::1", "private"),
    ("fd12:3456::1", "private"),
    ("fec0::1", "private"),
    ("ff02::1", "multicast"),
    ("2001:db8::1", "documentation"),
    ("3fff::1", "documentation"),
    ("2001:2::1", "benchmark"),
    ("2001::1", "reserved"),
    ("2001:10::1", "reserved"),
    ("100::1", "reserved"),
    ("4000::1", "reserved"),
    ("64:ff9b:1::1", "private"),
    ("2606:4700:4700::1111", "public"),
    ("2a00:1450:4001::1", "public"),
    # wrapped IPv4 addresses
    ("::ffff:127.0.0.1", "loopback"),
    ("::ffff:10.0.0.1", "private"),
    ("::ffff:169.254.169.254", "cloud metadata"),
    ("::127.0.0.1", "loopback"),
    ("::ffff:0:127.0.0.1", "loopback"),
    ("2002:7f00:1::", "loopback"),
    ("2002:a9fe:a9fe::", "cloud metadata"),
    ("64:ff9b::7f00:1", "loopback"),
    ("64:ff9b::a9fe:a9fe", "cloud metadata"),
    ("64:ff9b::101:101", "public"),
    ("::ffff:8.8.8.8", "public"),
    ("not an address", "reserved"),
]


@pytest.mark.parametrize(("address", "kind"), CLASSES)
def test_every_address_has_the_class_of_its_range(address: str, kind: str) -> None:
    """An address is judged by this table, with IPv4 addresses unwrapped from IPv6 ones."""
    assert classify_address(address) == AddressClass(kind)


@pytest.mark.parametrize("spelling", ["127.1", "0x7f000001", "2130706433", "017700000001", "localhost"])
def test_an_odd_spelling_is_no_literal(spelling: str) -> None:
    """Only canonical literals skip the resolver; all other spellings are judged by its answer."""
    assert parse_address(spelling) is None
