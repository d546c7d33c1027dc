"""Which addresses may be called: public ones, over https, on the usual ports, unless allowed.

A caller that names an address must not reach what only this machine can reach. A name is
resolved once, each of its addresses is checked, and the connection goes to a checked address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from holdfast.errors import Fault, HoldfastError, ValidationError

PORTS = frozenset({80, 443, 8080, 8443})
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Not public although ``is_global`` of some Python versions says so: translations into the IPv4
# inside (NAT64, 6to4, Teredo), protocol assignments, site-local and unspecified space.
_DENIED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "240.0.0.0/4",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
        "fec0::/10",
        "::/96",
    )
)


class RefusedAddressError(HoldfastError):
    """An address that must not be called; the message gives the reason and what would allow it."""


class AddressGuard:
    """Checks addresses; ``WebhookSettings.allow`` lifts rules."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        keywords = {"http", "ports", "private"}
        self._http = "http" in allow
        self._ports = "ports" in allow
        self._private = "private" in allow
        try:
            self._networks = [ipaddress.ip_network(each) for each in allow if each not in keywords]
        except ValueError as error:
            message = f"must hold http, ports, private or networks: {error}"
            raise ValidationError([Fault("webhooks.allow", "INVALID", message)]) from None

    def url(self, url: str) -> SplitResult:
        """Return the parts of an address; RefusedAddressError when its text alone rules it out."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise RefusedAddressError(f"address {url!r:.100} cannot be read: {error}") from None
        if parts.scheme != "https" and not (parts.scheme == "http" and self._http):
            raise RefusedAddressError("address must begin with https://; 'http' would allow http")
        if not host or parts.username is not None or parts.password is not None:
            raise RefusedAddressError("address must name a host and hold no credentials")
        if port is not None and port not in PORTS and not self._ports:
            raise RefusedAddressError(f"port {port} is refused; 'ports' would allow it")
        if _looks_numeric(host):
            self.address(host)
        return parts

    def address(self, host: str) -> None:
        """Raise RefusedAddressError for an IP address that is neither public nor allowed."""
        try:
            address = ipaddress.ip_address(host.split("%", maxsplit=1)[0])
        except ValueError:
            raise RefusedAddressError(f"{host!r:.60} is not an IP address") from None
        inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        if not self._may_call(inner or address):
            raise RefusedAddressError(
                f"{host} is not a public address; its network, or 'private', would allow it"
            )

    def _may_call(self, address: Address) -> bool:
        if self._private or any(_within(address, network) for network in self._networks):
            return True
        return (
            address.is_global
            and not address.is_multicast
            and not any(_within(address, network) for network in _DENIED)
        )


def _within(address: Address, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    return address.version == network.version and address in network


def _looks_numeric(host: str) -> bool:
    """Whether a client may read a host as an IP address in one of its many spellings."""
    return ":" in host or host.replace(".", "").isdigit() or host.lower().startswith("0x")
