"""Celery: its defaults; or late acknowledgement with a visibility timeout of ten seconds."""

from __future__ import annotations

from celery import Celery
from job import FAST, URL, become, endless, main

app = Celery("celery_peer", broker=URL, backend=URL)
if FAST:
    app.conf.task_acks_late = True
    app.conf.task_reject_on_worker_lost = True
    app.conf.worker_prefetch_multiplier = 1
    app.conf.broker_transport_options = {"visibility_timeout": 10}

task = app.task(name="endless")(endless)


def work() -> None:
    """Run the worker of its command line, with processes."""
    become("celery", "-A", "celery_peer", "worker", "-l", "WARNING", "-n", "%i@%h")


if __name__ == "__main__":
    main(submit=task.delay, work=work)
