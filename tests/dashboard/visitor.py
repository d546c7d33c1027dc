"""A browser without script, in this process: keeps cookies, sends forms as a page would."""

from __future__ import annotations

import html
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from holdfast import Holdfast
from holdfast.dashboard import Dashboard
from holdfast.store import MemoryStore
from tests.http.site import Reply, Site, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

OWN_PAGE = {"sec-fetch-site": "same-origin"}


class Guest:
    """One person's browser."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cookies: dict[str, str] = {}
        self.token = ""

    async def get(self, path: str, **headers: str) -> Reply:
        return self._read(await self.site.call("GET", path, headers=self._headers(headers)))

    async def post(self, path: str, fields: Mapping[str, Any] | None = None, **more: Any) -> Reply:
        """Send a form of the page that was read last."""
        headers = {**OWN_PAGE, **more.pop("headers", {})}
        form = {"token": self.token, **(fields or {})}
        headers["content-type"] = "application/x-www-form-urlencoded"
        raw = urlencode(form, doseq=True).encode()
        reply = await self.site.call("POST", path, raw=raw, headers=self._headers(headers))
        return self._read(reply)

    async def follow(self, reply: Reply) -> Reply:
        """Read the page that a response leads to."""
        assert 303 == reply.status, reply.body
        return await self.get(reply.headers["location"])

    async def sign_in(self, key: str) -> Reply:
        await self.get("/login")
        return await self.post("/login", {"key": key})

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        kept = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return {**({"cookie": kept} if kept else {}), **named}

    def _read(self, reply: Reply) -> Reply:
        cookie = reply.headers.get("set-cookie", "")
        if cookie:
            name, _, rest = cookie.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        found = re.search(rb'name="token" value="([0-9a-f]+)"', reply.body)
        if found:
            self.token = found[1].decode()
        return reply


def text_of(reply: Reply) -> str:
    """Return the visible text of a page."""
    body = re.sub(r"<[^>]+>", " ", reply.body.decode())
    return " ".join(html.unescape(body).split())


@asynccontextmanager
async def dashboard_site(app: Holdfast | None = None, **options: Any) -> AsyncIterator[Site]:
    """Run the service with its dashboard, by default over a store in memory."""
    app = app or Holdfast(store=MemoryStore())
    pages = options.pop("pages", Dashboard)
    async with running(app, pages=pages, **options) as site:
        yield site


async def failed_job(
    site: Site, type_: str = "email.send", *, key: str | None = None, **failure: Any
) -> str:
    """Submit a job that fails for good."""
    job_id = await site.submit(type_, {"to": "ada"}, key=key, max_attempts=1)
    await fail_next(site, type_, key=key, **failure)
    return job_id


async def fail_next(site: Site, type_: str, *, key: str | None = None, **failure: Any) -> None:
    """Claim the next job of a type and fail it for good."""
    (job,) = await site.claim(key, types=[type_], limit=1)
    body = {
        "lease_token": job["lease_token"],
        "category": "PERMANENT",
        "message": "the server said 550",
        "code": "MAILBOX_UNKNOWN",
        **failure,
    }
    reply = await site.post(f"/api/v1/jobs/{job['job_id']}/fail", body, key=key)
    assert 200 == reply.status, reply.body
