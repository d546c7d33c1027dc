"""A shop with Flask and SQLAlchemy: a job exists once the order that it belongs to is committed.

Run it with two processes:

    flask --app shop run
    flask --app shop holdfast worker
"""

import os
import time

from flask import Flask, abort, current_app, request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Holdfast, NotFoundError
from holdfast.contrib.flask import FlaskHoldfast
from holdfast.contrib.sqlalchemy import in_session

jobs = Holdfast()
queue = FlaskHoldfast(jobs)


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    confirmed: Mapped[bool] = mapped_column(default=False)


@jobs.task("order.confirm", max_attempts=5)
def confirm(order_id: int) -> str:
    """Confirm an order; the pause stands for a slow payment provider."""
    time.sleep(current_app.config["PAUSE"])
    with Session(current_app.extensions["engine"]) as session, session.begin():
        order = session.get_one(Order, order_id)
        order.confirmed = True
        return order.item


def create_app() -> Flask:
    """Create the site."""
    site = Flask(__name__)
    site.config["HOLDFAST_URL"] = os.environ.get("HOLDFAST_URL", "sqlite:///jobs.db")
    site.config["PAUSE"] = float(os.environ.get("SHOP_PAUSE", "0"))
    engine = create_engine(os.environ.get("DATABASE_URL", "sqlite:///shop.db"))
    Base.metadata.create_all(engine)  # a real shop has migrations
    site.extensions["engine"] = engine
    queue.init_app(site)

    @site.post("/orders")
    def create_order() -> tuple[dict[str, object], int]:
        with Session(engine) as session, session.begin():
            order = Order(item=request.get_json()["item"])
            session.add(order)
            session.flush()
            job = in_session(session, confirm).submit_sync(order.id)
            if order.item == "unicorn":
                abort(409, "we have no unicorns")  # rolls both back
            return {"id": order.id, "job_id": job.job_id}, 201

    @site.get("/orders/<int:order_id>")
    def read_order(order_id: int) -> dict[str, object]:
        with Session(engine) as session:
            order = session.get(Order, order_id)
            if order is None:
                abort(404)
            return {"id": order.id, "item": order.item, "confirmed": order.confirmed}

    @site.get("/jobs/<job_id>")
    def read_job(job_id: str) -> dict[str, object]:
        try:
            job = jobs.sync.get(job_id)
        except NotFoundError:
            abort(404)
        return {"state": job.state, "attempt": job.attempt, "output": job.output}

    return site
