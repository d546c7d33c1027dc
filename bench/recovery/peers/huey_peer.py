"""huey: its defaults. It removes a job from its store before it runs it."""

from __future__ import annotations

from huey import SqliteHuey
from job import URL, become, endless, main

huey = SqliteHuey("recovery", filename=URL)
task = huey.task()(endless)

if __name__ == "__main__":
    import huey_peer  # the task is registered by the name under which the consumer imports it

    main(submit=huey_peer.task, work=lambda: become("huey_consumer", "huey_peer.huey", "-q"))
