"""A shop with Litestar that runs its jobs itself: one process, one SQLite file.

Run it:

    litestar --app shop:site run
"""

import asyncio
import os

from litestar import Litestar, get, post
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException

from holdfast import Holdfast, NotFoundError
from holdfast.contrib.litestar import HoldfastPlugin

jobs = Holdfast()  # $HOLDFAST_URL, else sqlite:///holdfast.db


@jobs.task("report.build", max_attempts=5, lease=5)
async def build_report(month: str) -> str:
    """Build a report; the pause stands for the work."""
    await asyncio.sleep(float(os.environ.get("SHOP_PAUSE", "0")))
    return f"the report of {month}"


@post("/reports/{month:str}")
async def request_report(month: str) -> dict[str, str]:
    """Submit a job; a second request for the same month returns the same one."""
    job = await build_report.using(idempotency_key=month).submit(month)
    return {"job_id": job.job_id}


@get("/jobs/{job_id:str}")
async def read_job(job_id: str, jobs: NamedDependency[Holdfast]) -> dict[str, object]:
    """Show the state of a job."""
    try:
        job = await jobs.get(job_id)
    except NotFoundError:
        raise NotFoundException from None
    return {"state": job.state, "attempt": job.attempt, "output": job.output}


site = Litestar([request_report, read_job], plugins=[HoldfastPlugin(jobs, worker=True)])
