"""Dramatiq: its defaults; or a heartbeat of five seconds and maintenance at every fetch."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from job import FAST, URL, become, endless, main

SHORT = {"heartbeat_timeout": 5_000, "maintenance_chance": 1_000_000}
dramatiq.set_broker(RedisBroker(url=URL, **(SHORT if FAST else {})))
actor = dramatiq.actor(endless)


def work() -> None:
    """Run its command line with one worker process below it."""
    become("dramatiq", "dramatiq_peer", "--processes", "1", "--path", ".")


if __name__ == "__main__":
    main(submit=actor.send, work=work)
