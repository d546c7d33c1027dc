"""What a browser loads: small, hashed, kept for ever, and nothing else."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.dashboard import statics
from tests.dashboard.visitor import Guest, failed_job

if TYPE_CHECKING:
    from tests.http.site import Site

DOCS = Path(__file__).parents[2] / "docs" / "dashboard.md"
MOST_SCRIPT, MOST_LOADED = 8192, 61_440


def test_script_is_small() -> None:
    (script,) = [f for name, f in statics.load().files.items() if name.endswith(".js")]

    assert len(script.compressed) <= MOST_SCRIPT


async def test_first_load_is_small(site: Site) -> None:
    for number in range(60):
        await failed_job(site, message=f"mailbox {number} is full")
    guest = Guest(site)
    page = (await guest.get("/jobs")).body
    names = set(re.findall(r'"(/static/[^"]+)"', page.decode()))
    files = [(await guest.get(name)).body for name in names]

    loaded = sum(len(gzip.compress(body, 5)) for body in [page, *files])

    assert 3 == len(names)
    assert loaded <= MOST_LOADED
    (requests, size) = re.findall(r"takes (\w+) requests and (\d+) KB", DOCS.read_text("utf-8"))[0]
    assert "four" == requests
    assert abs(int(size) - loaded / 1024) < 1.5, "docs/dashboard.md names another size"


async def test_files_are_kept_and_old_names_find_nothing(guest: Guest) -> None:
    name = statics.load().names["app.css"]

    found = await guest.get(f"/static/{name}", accept_encoding="gzip")
    old = await guest.get("/static/app.000000000000.css")

    assert (200, "public, max-age=31536000, immutable") == (
        found.status,
        found.headers["cache-control"],
    )
    assert "gzip" == found.headers["content-encoding"]
    assert 404 == old.status


async def test_head_has_no_body(site: Site) -> None:
    reply = await site.call("HEAD", "/jobs")

    assert (200, b"") == (reply.status, reply.body)
