"""Refuses the callback address of a submission where its delivery would be refused later.

The address guard judges the text, and what the name resolves to now. A name that does not
resolve in time is accepted: the delivery is checked again, when it is made.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TypeGuard

from msgspec.structs import replace

from holdfast.errors import Fault
from holdfast.model.addresses import is_web_address
from holdfast.model.submission import Submission
from holdfast.webhooks.address_guard import AddressGuard, RefusedAddressError
from holdfast.webhooks.values import VARIABLE

RESOLVE_WITHIN = 1.0
"""How many seconds a submission waits for the addresses of a name."""
KEPT_FOR = 60.0
"""How many seconds the verdict about a host counts: a burst of jobs asks once."""
MOST_KEPT = 1000


class CallbackScreen:
    """Adds a fault to submissions whose callback address will be refused."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._verdicts: dict[str, tuple[float, str]] = {}
        """The reason against a name, empty when there is none, and until when it counts."""

    async def screened(self, submissions: Sequence[Submission]) -> list[Submission]:
        """Return the submissions, those whose address will be refused with a fault."""
        now = asyncio.get_running_loop().time()
        hosts = {host for each in submissions if (host := self._host(each))}
        new = [host for host in hosts if self._verdicts.get(host, (now, ""))[0] <= now]
        if len(self._verdicts) + len(new) > MOST_KEPT:
            self._verdicts.clear()
        reasons = await asyncio.gather(*(self._resolve(host) for host in new))
        self._verdicts |= {
            host: (now + KEPT_FOR, reason) for host, reason in zip(new, reasons, strict=True)
        }
        return [self._judged(each) for each in submissions]

    def fault(self, url: str | None) -> Fault | None:
        """Return the fault of an address, by its text and by what is known of its name."""
        if not _is_readable(url) or not (reason := self._reason(url)):
            return None
        message = f"is refused: {reason} (${VARIABLE} or WebhookSettings.allow)"
        return Fault("callback_url", "REFUSED", message)

    def _host(self, submission: Submission) -> str | None:
        """Return the host of a callback address, unless its text alone decides."""
        url = submission.callback_url
        try:
            return self._guard.url(url).hostname if _is_readable(url) else None
        except RefusedAddressError:
            return None

    def _judged(self, submission: Submission) -> Submission:
        fault = self.fault(submission.callback_url)
        return replace(submission, faults=(*submission.faults, fault)) if fault else submission

    def _reason(self, url: str) -> str:
        """Return why an address will be refused, or nothing."""
        try:
            host = self._guard.url(url).hostname
        except RefusedAddressError as error:
            return str(error)
        return self._verdicts.get(str(host), (0.0, ""))[1]

    async def _resolve(self, host: str) -> str:
        """Return why the addresses of a name are refused, or nothing; never block the loop."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_WITHIN):
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            for *_, place in found:
                self._guard.address(str(place[0]))
        except RefusedAddressError as error:
            return f"{host} resolves to {error}"
        except (OSError, UnicodeError):  # it does not resolve now, or not in time
            return ""
        return ""


def _is_readable(url: object) -> TypeGuard[str]:
    """Whether an address can be judged; of others ``accept`` reports the fault."""
    return isinstance(url, str) and is_web_address(url)
