"""holdfast in the comparison: the defaults; or a lease of one second.

``python -m bench.recovery.site submit`` submits the job; ``holdfast worker`` runs it.
"""

from __future__ import annotations

import asyncio

from bench.recovery.peers.job import FAST, URL, endless_coroutine, main
from holdfast import Holdfast

app = Holdfast(URL)
task = app.task("endless", lease=1 if FAST else None)(endless_coroutine)


async def submit() -> None:
    """Submit."""
    async with app:
        await task.submit()


if __name__ == "__main__":
    main(submit=lambda: asyncio.run(submit()))
