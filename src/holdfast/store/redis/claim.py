"""Claiming ready jobs, and making the next job of a BullMQ scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.model.job import Job
from holdfast.store.redis import decode
from holdfast.store.redis.bullmq_schedulers import advance
from holdfast.store.redis.decode import JobReply, ShortReply
from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession
from holdfast.store.redis.settings import ForeignTerms
from holdfast.store.redis.wake import Arrivals
from holdfast.store.values import Claim


async def claim(session: RedisSession, arrivals: Arrivals, want: Claim) -> list[Job]:
    """Claim ready jobs; see ``Store.claim``."""
    filters = pack([want.queues, want.types if want.types is not None else False])
    arguments = (want.limit, want.worker, want.token, filters)
    stopped_early, *replies = await session.call("claim", *arguments)
    while stopped_early and not replies:
        stopped_early, *replies = await session.call("claim", *arguments)
    full = [reply for reply in replies if len(reply) == 3]
    arrivals.claimed(want.queues, {queue.decode() for _, queue, _ in full}, want.worker)
    for reply in full:
        if tick := decode.scheduled(reply):
            await advance(session, *tick)
    return _read_jobs(replies, session.settings.foreign)


def _read_jobs(replies: Sequence[JobReply | ShortReply], terms: ForeignTerms) -> list[Job]:
    """Read claimed jobs; a short reply stands for a job like the one before it."""
    found: list[Job] = []
    last: Job | None = None
    for reply in replies:
        if len(reply) == 2:
            assert last is not None
            job_id, data = reply
            payload = decode.payload(data or b"", last.encoding)
            found.append(replace(last, id=job_id.decode(), payload=payload))
        else:
            last = decode.read_job(reply, terms)
            found.append(last)
    return found
