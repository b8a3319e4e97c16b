"""The addresses of clients: the part that belongs to a single client, and whether an address is in a network."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network
PREFIX: Final = 64
"""The bits of an IPv6 address that a provider assigns: a client has all addresses that begin with these bits."""


def address_of(host: str) -> str:
    """Return the form of an address under which limits count it. For IPv6 this is the network, since a client has all
    addresses of its network.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Network((address, PREFIX), strict=False))


def networks_of(texts: Iterable[str]) -> list[Network]:
    """Read networks such as 10.0.0.0/8; ``ValueError`` names a bad network, or one that covers all addresses."""
    found = [ip_network(text, strict=False) for text in texts]
    for network in found:
        if network.prefixlen == 0:
            raise ValueError(
                f"{network} is every address: whoever connects would be believed; name the proxy's address"
            )
    return found


def is_one_of(host: str, networks: Sequence[Network]) -> bool:
    """Return whether an address is in one of some networks."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)
