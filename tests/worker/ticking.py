"""An app whose one schedule ticks every second; a missed run is made up once."""

from __future__ import annotations

from holdfast import Holdfast

app = Holdfast()


@app.cron("* * * * * *", missed="one")
@app.task("tick")
async def tick() -> None:
    """Count as done."""
