"""An address cannot be used to reach the internal network."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import ValidationError
from holdfast.webhooks import AddressGuard, RefusedAddressError
from holdfast.webhooks.transport import UnreachableError, post
from tests.certificates import Authority
from tests.webhooks.receiver import listening

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

INSIDE = [
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "0x7f.1",
    "2130706433",
    "017700000001",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[fe80::1]",
    "[fec0::1]",
    "[fc00::1]",
    "[::127.0.0.1]",
]


@pytest.mark.parametrize("host", INSIDE)
@pytest.mark.req("A-19")
async def test_every_spelling_of_an_internal_address_is_refused(host: str) -> None:
    with pytest.raises(RefusedAddressError):
        await post(f"https://{host}/", b"", {}, guard=AddressGuard(), timeout=timedelta(seconds=1))


async def test_name_of_an_internal_address_is_refused() -> None:
    async with listening() as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")

        with pytest.raises(RefusedAddressError, match="not a public address"):
            await post(
                url, b"", {}, guard=AddressGuard(["http", "ports"]), timeout=timedelta(seconds=1)
            )

    assert [] == receiver.calls


async def test_one_internal_address_among_public_ones_refuses_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _resolving(monkeypatch, [["93.184.216.34", "10.0.0.1"]])

    with pytest.raises(RefusedAddressError, match=r"10\.0\.0\.1"):
        await post(
            "https://mixed.example/", b"", {}, guard=AddressGuard(), timeout=timedelta(seconds=1)
        )


async def test_name_is_resolved_once_and_the_checked_address_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved = _resolving(monkeypatch, [["192.0.2.1"], ["127.0.0.1"], ["127.0.0.1"]])
    async with listening() as receiver:
        url = receiver.url.replace("127.0.0.1", "rebound.example")
        allowed = AddressGuard(["http", "ports", "192.0.2.0/24"])

        with pytest.raises((UnreachableError, RefusedAddressError)):
            await post(url, b"", {}, guard=allowed, timeout=timedelta(milliseconds=300))

    assert [] == receiver.calls
    assert ["rebound.example"] == resolved


async def test_the_socket_itself_is_checked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """In case the address changes between the check and the connection."""
    guard = AddressGuard(["http", "ports"])
    monkeypatch.setattr(
        "holdfast.webhooks.transport._CheckedResolver.resolve",
        lambda self, host, port=0, family=0: _unchecked(host, port),
    )
    async with listening() as receiver:
        url = receiver.url.replace("127.0.0.1", "sneaky.example")

        with pytest.raises((UnreachableError, RefusedAddressError)):
            await post(url, b"", {}, guard=guard, timeout=timedelta(seconds=1))

    assert [] == receiver.calls


@pytest.mark.req("A-19")
@pytest.mark.parametrize(
    ("certified", "trusted", "delivered"),
    [
        ("hooks.example", True, True),
        ("other.example", True, False),
        ("127.0.0.1", True, False),
        ("hooks.example", False, False),
    ],
)
async def test_certificate_must_be_trusted_and_name_the_host_not_its_address(
    certified: str,
    *,
    trusted: bool,
    delivered: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(cafile=authority.file if trusted else None)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", context)
    _resolving(monkeypatch, [["127.0.0.1"]])
    guard, patience = AddressGuard(["ports", "127.0.0.0/8"]), timedelta(seconds=5)

    async with listening(tls=authority.certificate(certified).context()) as receiver:
        url = receiver.url.replace("127.0.0.1", "hooks.example")
        refused = pytest.raises(UnreachableError, match="certificate verify failed")
        with contextlib.nullcontext() if delivered else refused:
            await post(url, b"{}", {}, guard=guard, timeout=patience)

    assert delivered is bool(receiver.calls)


@pytest.mark.parametrize(
    ("url", "allow"),
    [
        ("http://example.org/", "http"),
        ("https://example.org:9000/", "ports"),
        ("https://10.1.2.3/", "10.0.0.0/8"),
        ("https://[::1]/", "private"),
        ("https://[::ffff:10.1.2.3]/", "10.0.0.0/8"),
    ],
)
def test_what_is_refused_can_be_allowed_by_name(url: str, allow: str) -> None:
    with pytest.raises(RefusedAddressError, match="allow"):
        AddressGuard().url(url)

    AddressGuard([allow]).url(url)


def test_public_address_may_be_called() -> None:
    for url in ("https://example.org/hook?x=1", "https://93.184.216.34/", "https://a.b:8443/"):
        AddressGuard().url(url)


def test_unknown_keyword_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"webhooks\.allow"):
        AddressGuard(["intranet"])


def _resolving(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> list[str]:
    """Resolve names to these addresses, each time to the next ones."""
    resolved: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: object) -> Sequence[object]:
        resolved.append(host)
        addresses = answers[min(len(resolved), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return resolved


async def _unchecked(host: str, port: int) -> list[dict[str, object]]:
    place = {"hostname": host, "host": "127.0.0.1", "port": port}
    return [{**place, "family": socket.AF_INET, "proto": 6, "flags": socket.AI_NUMERICHOST}]
