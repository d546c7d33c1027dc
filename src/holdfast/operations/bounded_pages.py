"""Pages of jobs that are bounded in bytes, whatever the jobs contain.

Without the bound, a page of thirty jobs with results of 15 MB took 1.5 GB of memory.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.model.job import Job
from holdfast.store import Page, Search, Store

MOST_RESULT = 16_384
"""Bytes of a result that a list shows; it leaves out larger ones."""
MOST_PAGE = 8 * 1024 * 1024
"""Bytes of a page: it ends early when its jobs have more."""
_BARE = 1000
"""Bytes of a job without any of its texts, about."""


async def bounded_page(store: Store, search: Search) -> Page:
    """Return a page without large results, and with fewer jobs when they are large otherwise."""
    search = replace(search, most_bytes=MOST_RESULT)
    page = await store.find(search)
    fitting = _fitting(page.jobs)
    return page if fitting >= len(page.jobs) else await store.find(replace(search, limit=fitting))


def _fitting(jobs: tuple[Job, ...]) -> int:
    """Return how many jobs fit into a page, at least one."""
    left = MOST_PAGE
    for count, job in enumerate(jobs):
        left -= _size(job)
        if left < 0:
            return max(1, count)
    return len(jobs)


def _size(job: Job) -> int:
    """Return about how many bytes a list has for a job."""
    failure = job.failure
    return (
        _BARE
        + len(job.result or b"")
        + len(job.extra or b"")
        + sum(len(name) + len(value) for name, value in job.tags.items())
        + sum(map(len, job.depends_on))
        + (2 * (len(failure.message) + len(failure.stack_trace)) if failure else 0)
        + (2 * sum(map(len, failure.context.values())) if failure else 0)
    )
