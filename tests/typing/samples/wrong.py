"""Calls that are wrong: a type checker reports exactly the lines marked ``# wrong``."""

from __future__ import annotations

from holdfast import Holdfast, JobContext, SyncJobContext

app = Holdfast("memory://")


@app.task("email.send")
async def send_email(ctx: JobContext, to: str, subject: str = "hello") -> dict[str, str]:
    return {"to": to, "subject": subject}


@app.task("report.build", runner="process")
def build_report(ctx: SyncJobContext, year: int, *, pages: int = 1) -> int:
    return year * pages


@app.task("square")
def square(number: int) -> int:
    return number * number


@app.task
async def bare(ctx: JobContext, number: int) -> str:
    return str(number)


@app.task("new.name")
@app.task("old.name")
def renamed(ctx: SyncJobContext, number: int) -> int:
    return number


app.task("colourful", colour="red")  # wrong
app.register("later", bare.function, timeout=[5])  # wrong


async def submit_named() -> None:
    await bare.submit("3")  # wrong
    await renamed.submit("3")  # wrong


async def submit(ctx: JobContext) -> None:
    await send_email.submit(to=3)  # wrong
    await send_email.submit(ctx, "a@b.c")  # wrong
    await send_email.submit(ctx=ctx, to="a@b.c")  # wrong
    await send_email.submit("a@b.c", topic="hi")  # wrong
    await send_email.submit()  # wrong
    await send_email.using(priority="HIGH").submit(to=None)  # wrong
    await send_email.using(piority="HIGH").submit(to="a@b.c")  # wrong
    await send_email.using(delay=[60]).submit(to="a@b.c")  # wrong
    await build_report.submit("2026")  # wrong
    await build_report.submit(2026, 3)  # wrong
    build_report.submit_sync(2026, pages="3")  # wrong
    square.submit_sync("two")  # wrong


async def call(ctx: JobContext) -> None:
    await send_email(to=3)  # wrong
    await send_email(ctx, "a@b.c")  # wrong
    build_report("2026")  # wrong
    text: str = square(2)  # wrong
    print(text)
    await app.submit("email.send", {"to": "a@b.c"}, queue=7)  # wrong
    await app.search(types="email.send", colour="red")  # wrong


async def write(ctx: JobContext, plain: SyncJobContext) -> None:
    async with ctx.transaction() as connection:
        connection.excute("SELECT 1")  # wrong
    with ctx.transaction():  # wrong
        pass
    with plain.transaction() as other:
        other.execute("SELECT %s", 1)  # wrong


async def spawn(ctx: JobContext, sync: SyncJobContext) -> None:
    await ctx.spawn(7)  # wrong
    await ctx.spawn(square.submission(2), {"number": 2})  # wrong
    await ctx.spawn(square.submission)  # wrong
    await ctx.spawn("square", piority="LOW")  # wrong
    sync.spawn(None)  # wrong
    sync.spawn(square.submission(2), {"number": 2})  # wrong
    sync.spawn(square, {"number": 2}, key=2)  # wrong
