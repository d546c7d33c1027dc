"""A shop with FastAPI, SQLAlchemy and PostgreSQL: an order and its job commit together.

Run it with two processes:

    export DATABASE_URL=postgresql://shop@localhost/shop HOLDFAST_URL=$DATABASE_URL
    uvicorn shop:site
    holdfast worker shop:jobs
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import Holdfast, NotFoundError
from holdfast.contrib.fastapi import JobApp, SessionJobs, lifespan, session_jobs

engine = create_async_engine(
    os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1)
)
new_session = async_sessionmaker(engine, expire_on_commit=False)
jobs = Holdfast()  # $HOLDFAST_URL


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    confirmed: Mapped[bool] = mapped_column(default=False)


@jobs.task("order.confirm", max_attempts=5)
async def confirm(order_id: int) -> str:
    """Confirm an order; the pause stands for a slow payment provider."""
    await asyncio.sleep(float(os.environ.get("SHOP_PAUSE", "0")))
    async with new_session.begin() as session:
        order = await session.get_one(Order, order_id)
        order.confirmed = True
        return order.item


async def get_session() -> AsyncIterator[AsyncSession]:
    """Open a session for a request; commit it if the request succeeds."""
    async with new_session.begin() as session:
        yield session


# The scope commits before the response is sent; by default FastAPI commits after it.
Session = Annotated[AsyncSession, Depends(get_session, scope="function")]
Jobs = Annotated[SessionJobs, Depends(session_jobs(get_session, scope="function"))]


@asynccontextmanager
async def tables(_: FastAPI) -> AsyncIterator[None]:
    """Create the tables; a real shop has migrations."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


site = FastAPI(lifespan=lifespan(jobs, tables))


class NewOrder(BaseModel):
    """The body of a new order."""

    item: str


@site.post("/orders", status_code=201)
async def create_order(given: NewOrder, session: Session, enqueue: Jobs) -> dict[str, object]:
    """Store an order and the job that confirms it, both or neither."""
    order = Order(item=given.item)
    session.add(order)
    await session.flush()
    job = await enqueue(confirm).submit(order.id)
    if given.item == "unicorn":
        raise HTTPException(409, "we have no unicorns")  # rolls both back
    return {"id": order.id, "job_id": job.job_id}


@site.get("/orders/{order_id}")
async def read_order(order_id: int, session: Session) -> dict[str, object]:
    """Show an order."""
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"id": order.id, "item": order.item, "confirmed": order.confirmed}


@site.get("/jobs/{job_id}")
async def read_job(job_id: str, app: JobApp) -> dict[str, object]:
    """Show the state of a job."""
    try:
        job = await app.get(job_id)
    except NotFoundError:
        raise HTTPException(404) from None
    return {"state": job.state, "attempt": job.attempt, "output": job.output}
