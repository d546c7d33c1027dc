"""The app of the image and of the compose file: replace it with your own."""

import asyncio

from holdfast import Holdfast, JobContext

app = Holdfast()  # $HOLDFAST_URL names the store


@app.task("email.send", max_attempts=5, timeout=30)
async def send_email(ctx: JobContext, to: str) -> str:
    await asyncio.sleep(0.1)  # a mail server takes its time
    return f"sent to {to} in attempt {ctx.attempt}"


@app.task("order.place")
async def place_order(number: int) -> None:
    await send_email.submit(to=f"customer of order {number}")
