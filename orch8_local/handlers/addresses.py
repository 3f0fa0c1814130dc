"""What sort of place an IP address is. Pure, and with a table of its own.

Owns the classes that decide where a request may go. The easy mistake: trusting `ipaddress` with the
question "is it public"; its answer changed between versions (reliability 4h), and an IPv4 address
wrapped in an IPv6 one (mapped, compatible, 6to4, NAT64) reads as public there. Here every wrapped
address is unwrapped first, and IPv6 is public only inside 2000::/3, so what is new is refused.
"""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address


class AddressClass(StrEnum):
    """The kinds of address, named as in the message of a refusal."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    SHARED = "shared"
    LINK_LOCAL = "link-local"
    METADATA = "cloud metadata"
    BENCHMARK = "benchmark"
    DOCUMENTATION = "documentation"
    MULTICAST = "multicast"
    BROADCAST = "broadcast"
    UNSPECIFIED = "unspecified"
    RESERVED = "reserved"


A = AddressClass

# The services where a cloud machine reads its own credentials. Some lie in ranges that would pass.
METADATA_ADDRESSES = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)

# First match wins.
IPV4_TABLE = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/32", A.UNSPECIFIED),
        ("0.0.0.0/8", A.RESERVED),
        ("10.0.0.0/8", A.PRIVATE),
        ("100.64.0.0/10", A.SHARED),
        ("127.0.0.0/8", A.LOOPBACK),
        ("169.254.0.0/16", A.LINK_LOCAL),
        ("172.16.0.0/12", A.PRIVATE),
        ("192.0.0.0/24", A.RESERVED),
        ("192.0.2.0/24", A.DOCUMENTATION),
        ("192.88.99.0/24", A.RESERVED),
        ("192.168.0.0/16", A.PRIVATE),
        ("198.18.0.0/15", A.BENCHMARK),
        ("198.51.100.0/24", A.DOCUMENTATION),
        ("203.0.113.0/24", A.DOCUMENTATION),
        ("224.0.0.0/4", A.MULTICAST),
        ("255.255.255.255/32", A.BROADCAST),
        ("240.0.0.0/4", A.RESERVED),
    )
)

IPV6_TABLE = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::1/128", A.LOOPBACK),
        ("::/128", A.UNSPECIFIED),
        ("fc00::/7", A.PRIVATE),
        ("fec0::/10", A.PRIVATE),
        ("fe80::/10", A.LINK_LOCAL),
        ("ff00::/8", A.MULTICAST),
        ("64:ff9b:1::/48", A.PRIVATE),
        ("2001:2::/48", A.BENCHMARK),
        ("2001:db8::/32", A.DOCUMENTATION),
        ("3fff::/20", A.DOCUMENTATION),
        ("2001::/23", A.RESERVED),
        ("2000::/3", A.PUBLIC),
    )
)

# Networks whose last 32 bits are an IPv4 address: mapped, compatible, translated, NAT64.
WRAPPERS = tuple(IPv6Network(text) for text in ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
SIX_TO_FOUR = IPv6Network("2002::/16")

# Wherever the name of the host came from, nothing is ever sent to these.
NEVER = frozenset({A.LINK_LOCAL, A.METADATA})


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """A canonical literal as an address, without its zone; None for a name or an odd spelling.

    `127.1` and `0x7f000001` are None on purpose: they are for the resolver, whose answer is checked.
    """
    try:
        return ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None


def unwrapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one carries, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    value = int(address)
    if address in SIX_TO_FOUR:
        return IPv4Address((value >> 80) & 0xFFFFFFFF)
    if value > 1 and any(address in network for network in WRAPPERS):
        return IPv4Address(value & 0xFFFFFFFF)
    return address


def classify_address(text: str) -> AddressClass:
    """The class of an address as a resolver returns it; what does not parse is RESERVED."""
    parsed = parse_address(text)
    if parsed is None:
        return A.RESERVED
    address = unwrapped(parsed)
    if address in METADATA_ADDRESSES or parsed in METADATA_ADDRESSES:
        return A.METADATA
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in IPV4_TABLE if address in network), A.PUBLIC)
    return next((kind for network, kind in IPV6_TABLE if address in network), A.RESERVED)
