"""flexiq: its defaults; or a job timeout of five seconds, checked every second."""

from __future__ import annotations

from flexiq import Queue
from job import FAST, URL, become, endless, main

SHORT = {"default_timeout": 5, "scheduler_reap_interval": 20}
queue = Queue(db_path=URL, **(SHORT if FAST else {}))
task = queue.task(name="endless")(endless)

if __name__ == "__main__":
    main(
        submit=task.delay,
        work=lambda: become("flexiq", "worker", "--app", "flexiq_peer:queue"),
    )
