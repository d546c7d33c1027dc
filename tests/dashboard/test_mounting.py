"""The dashboard inside another site: below its root, with its login, started by itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import Holdfast
from holdfast.dashboard import Caller, Role, ShownJob, dashboard
from holdfast.store import MemoryStore
from tests.dashboard.visitor import Guest, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

ADA = Caller(key_id="ada", name="Ada", role=Role.OPERATOR)


def authorize(scope: Mapping[str, Any]) -> Caller | None:
    """A site whose login sets a header."""
    user = dict(scope["headers"]).get(b"x-user", b"")
    return ADA if user == b"ada" else None


class Mounted:
    """A site with the dashboard in it, called without a network."""

    def __init__(self, asgi: Any) -> None:
        self.asgi = asgi

    call: Any
    exchange: Any


def _site(asgi: Any) -> Any:
    from tests.http.site import Site

    class Plain(Site):
        def __init__(self) -> None:
            self.asgi = asgi

    return Plain()


@pytest.fixture
async def app() -> AsyncIterator[Holdfast]:
    async with Holdfast(store=MemoryStore()) as app:
        yield app


def _starlette(pages: Any) -> Any:
    return Starlette(routes=[Mount("/jobs", pages)])


def _fastapi(pages: Any) -> Any:
    site = FastAPI()
    site.mount("/jobs", pages)
    return site


@pytest.mark.parametrize("make", [_starlette, _fastapi])
async def test_links_and_redirections_stay_below_the_mount(app: Holdfast, make: Any) -> None:
    job = await app.submit("email.send", {"to": "ada"})
    pages = dashboard(app, authorize=authorize)
    guest = Guest(_site(make(pages)))

    home = await guest.get("/jobs/", x_user="ada")
    page = await guest.get(f"/jobs/jobs/{job.job_id}", x_user="ada")
    done = await guest.post(f"/jobs/jobs/{job.job_id}/cancel", headers={"x-user": "ada"})
    await pages.close()

    assert "/jobs/overview" == home.headers["location"]
    assert 200 == page.status
    links = re.findall(r'(?:href|action|src|data-feed)="([^"]*)"', page.body.decode())
    assert [] == [each for each in links if not each.startswith(("/jobs/", "#"))]
    assert done.headers["location"].startswith("/jobs/")
    assert "CANCELLED" == (await app.get(job.job_id)).state


async def test_site_refuses_whom_it_does_not_know(app: Holdfast) -> None:
    pages = dashboard(app, authorize=authorize)
    guest = Guest(_site(_starlette(pages)))

    assert 403 == (await guest.get("/jobs/jobs")).status
    assert 403 == (await guest.get("/jobs/login")).status
    await pages.close()


async def test_authorize_may_be_a_coroutine(app: Holdfast) -> None:
    async def later(scope: Mapping[str, Any]) -> Caller | None:
        return authorize(scope)

    pages = dashboard(app, authorize=later)

    assert 200 == (await Guest(_site(_starlette(pages))).get("/jobs/jobs", x_user="ada")).status
    await pages.close()


async def test_without_a_login_and_without_keys_nobody_gets_in(app: Holdfast) -> None:
    pages = dashboard(app)

    reply = await Guest(_site(_starlette(pages))).get("/jobs/jobs")
    await pages.close()

    assert 403 == reply.status
    assert "holdfast keys create" in text_of(reply)


async def test_it_starts_and_closes_an_app_that_nobody_has_started() -> None:
    app = Holdfast(store=MemoryStore())
    pages = dashboard(app, authorize=authorize)

    reply = await Guest(_site(_starlette(pages))).get("/jobs/jobs", x_user="ada")
    await pages.close()

    assert 200 == reply.status
    with pytest.raises(RuntimeError):
        _ = app.operations


async def test_site_that_closes_its_app_is_not_kept_open_by_the_dashboard() -> None:
    app = Holdfast(store=MemoryStore())
    pages = dashboard(app, authorize=authorize)
    async with app:
        await Guest(_site(_starlette(pages))).get("/jobs/jobs", x_user="ada")
        await pages.close()

    with pytest.raises(RuntimeError):
        _ = app.operations


async def test_payloads_can_be_hidden_or_formatted(app: Holdfast) -> None:
    job = await app.submit("email.send", {"to": "ada", "password": "hunter2"})
    path = f"/jobs/jobs/{job.job_id}"

    def form(job: ShownJob) -> str:
        return f"{job.type} for {job.payload['to']}"  # type: ignore[index]

    admin = Caller(key_id="ada", name="ada", role=Role.ADMIN)
    shown, copies = {}, {}
    for name, options in {
        "plain": {},
        "hidden": {"show_payloads": False},
        "formatted": {"format_payload": form},
    }.items():
        pages = dashboard(app, authorize=lambda _: admin, **options)  # type: ignore[arg-type]
        guest = Guest(_site(_starlette(pages)))
        shown[name] = text_of(await guest.get(path, x_user="ada"))
        copies[name] = (await guest.get(f"{path}/copy", x_user="ada")).status
        await pages.close()

    assert '"ada"' in shown["plain"]
    assert "hunter2" not in shown["plain"]
    assert "does not show payloads" in shown["hidden"]
    assert '"ada"' not in shown["hidden"]
    assert "email.send for ada" in shown["formatted"]
    assert {"plain": 200, "hidden": 403, "formatted": 403} == copies


@pytest.mark.slow
def test_wheel_and_source_archive_contain_templates_and_static_files(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)],
        cwd=root,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (wheel,), (archive,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        in_wheel = set(packed.namelist())
    with tarfile.open(archive) as packed_sources:
        in_archive = {name.partition("/")[2] for name in packed_sources.getnames()}

    folder = root / "src" / "holdfast" / "dashboard"
    needed = [
        path.relative_to(root / "src").as_posix()
        for part in ("templates", "static")
        for path in (folder / part).iterdir()
    ]
    assert needed
    assert set() == set(needed) - in_wheel
    assert set() == {f"src/{name}" for name in needed} - in_archive
