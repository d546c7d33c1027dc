"""A worker that counts in the transaction that completes its job; run to be killed."""

from __future__ import annotations

import asyncio
import sys

from holdfast import lifecycle
from holdfast.chance import Chance
from holdfast.errors import StaleLeaseError
from holdfast.store import Claim, Fence
from holdfast.store.postgres import PostgresStore


async def work(url: str) -> None:
    """Claim and count until killed."""
    chance = Chance()
    async with PostgresStore.from_url(url) as store:
        while True:
            token = chance.token()
            want = Claim(queues=("default",), limit=5, worker="counter", token=token)
            for job in await store.claim(want):
                try:
                    async with store.transaction(
                        Fence(job.id, token),
                        lambda job: lifecycle.completed(job, None, now=store.now()),
                    ) as connection:
                        await connection.execute("UPDATE counted SET n = n + 1")
                except StaleLeaseError:
                    continue


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
