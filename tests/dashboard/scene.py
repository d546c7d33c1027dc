"""Jobs of every kind on a store, through the API: what every screen needs to show something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.dashboard.visitor import failed_job

if TYPE_CHECKING:
    from tests.http.site import Site

HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
TURNED = "\u202egnp.exe\u2066 \x07"
TRACE = "Traceback (most recent call last):\n  File 'mail.py', line 7, in send\nSMTPError: 550"


async def set_scene(site: Site) -> dict[str, str]:
    """Fill a store; return the address of each screen to walk."""
    for number in range(4):
        await failed_job(site, "email.send", message=f"mailbox {number} full", stack_trace=TRACE)
    dead = await failed_job(site, "invoice.render", code="KeyError", message="'vat_number'")
    waiting = await site.submit("report.page", {"pages": 3}, delay=3600, tags={"tenant": "acme"})
    held = await site.submit("payment.capture", hold=True)
    parent = await site.submit("search.index", {"n": 10**20, "deep": {"list": [1, 2.50, None]}})
    for _ in range(3):
        await site.submit("image.thumbnail", depends_on=[parent], queue="media")
    running = await site.submit("export.customer", {"token": "secret"}, queue="exports")
    (job,) = await site.claim(queues=["exports"])
    token = job["lease_token"]
    await site.post(
        f"/api/v1/jobs/{running}/progress",
        {"lease_token": token, "percent": 40, "message": "4 of 10 files"},
    )
    await site.post(
        f"/api/v1/jobs/{running}/log",
        {"lease_token": token, "level": "info", "message": "opened the file"},
    )
    await site.post("/api/v1/limits/queue:media", {"concurrency": 2, "rate": 10, "per": "PT1M"})
    schedule = {"name": "nightly", "type": "search.index", "expression": "0 2 * * *"}
    await site.post("/api/v1/schedules", {**schedule, "payload": {"all": True}})
    await site.post("/api/v1/schedules/nightly/run", {})
    groups = (await site.get("/api/v1/failures/groups")).json["groups"]
    return {
        "overview": "/overview",
        "failures": "/failures",
        "failures-week": "/failures?window=7d",
        "failure": f"/failures/{groups[0]['group']}",
        "jobs": "/jobs",
        "jobs-none": "/jobs?q=type:nothing",
        "job-dead": f"/jobs/{dead}",
        "job-waiting": f"/jobs/{waiting}",
        "job-held": f"/jobs/{held}",
        "job-parent": f"/jobs/{parent}",
        "job-running": f"/jobs/{running}",
        "copy": f"/jobs/{waiting}/copy",
        "bulk": "/bulk?action=retry&q=state:failed",
        "bulk-delete": "/bulk?action=delete&q=state:failed",
        "operations": "/operations",
        "queues": "/queues",
        "queue": "/queues/media",
        "workers": "/workers",
        "schedules": "/schedules",
        "schedule": "/schedules/nightly",
        "schedule-new": "/new-schedule",
        "limits": "/limits",
        "workflow": f"/jobs/{parent}/workflow",
        "workflow-open": f"/jobs/{parent}/workflow?each=1",
        "webhooks": "/webhooks",
        "doctor": "/doctor",
        "audit": "/audit",
    }


async def hostile_job(site: Site) -> tuple[str, str]:
    """Submit a job full of markup, control characters and length; return its id and group."""
    text = f"{HOSTILE}{TURNED}" * 3
    job_id = await site.submit(
        "hostile.job",
        {HOSTILE: [text, {"password": "hunter2"}], "large": "x" * 1_000_000},
        tags={"a": text[:200], "wide": "w" * 200},
        correlation_id=HOSTILE[:60],
        max_attempts=1,
    )
    (job,) = await site.claim(types=["hostile.job"])
    token = job["lease_token"]
    for number in range(1000):
        await site.post(
            f"/api/v1/jobs/{job_id}/log",
            {"lease_token": token, "level": "info", "message": f"{number} {text}"},
        )
    failure = {
        "lease_token": token,
        "category": "PERMANENT",
        "message": f"{text} {'y' * 3000}",
        "code": "HOSTILE",
        "stack_trace": f"{text}\n" * 40,
        "context": {"where": text},
    }
    reply = await site.post(f"/api/v1/jobs/{job_id}/fail", failure)
    assert 200 == reply.status, reply.body
    groups = (await site.get("/api/v1/failures/groups")).json["groups"]
    return job_id, next(one["group"] for one in groups if one["code"] == "HOSTILE")
