"""RQ: its defaults; or a job with retries, and the shortest intervals of its worker."""

from __future__ import annotations

import redis
from job import FAST, URL, become, main
from rq import Queue, Retry

SHORT = ("--maintenance-interval", "5", "--worker-ttl", "15", "--job-monitoring-interval", "2")


def submit() -> None:
    """Enqueue."""
    more = {"retry": Retry(max=3), "job_timeout": 3600} if FAST else {}
    Queue(connection=redis.Redis.from_url(URL)).enqueue("job.endless", **more)


def work() -> None:
    """Run the worker of its command line, which forks for each job."""
    become("rq", "worker", "--url", URL, "--path", ".", *(SHORT if FAST else ()))


main(submit=submit, work=work)
