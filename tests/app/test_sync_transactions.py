"""Submitting in transactions of blocking code: Flask and Django as people write them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, ValidationError

if TYPE_CHECKING:
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres

DJANGO = """
import sys
from urllib.parse import urlsplit
from django.conf import settings

at = urlsplit(sys.argv[1])
database = {
    "ENGINE": "django.db.backends.postgresql", "NAME": at.path[1:], "USER": at.username,
    "HOST": at.hostname, "PORT": at.port,
}
settings.configure(DATABASES={"default": database})

from django.db import connection, transaction
from holdfast import Holdfast, NotFoundError, StoreError

app = Holdfast(f"{sys.argv[1]}?schema=django")

@app.task("greet")
def greet(name: str) -> None: ...

with transaction.atomic():
    kept = greet.using(connection=connection).submit_sync(name="a")
try:
    with transaction.atomic():
        dropped = greet.using(connection=connection).submit_sync(name="b")
        raise LookupError
except LookupError:
    pass
print(app.sync.get(kept.job_id).state)
try:
    app.sync.get(dropped.job_id)
except NotFoundError:
    print("dropped")
try:
    greet.using(connection=connection).submit_sync(name="c")
except StoreError as error:
    print(error)
with transaction.atomic():
    transaction.set_rollback(True)
    try:
        greet.using(connection=connection).submit_sync(name="d")
    except StoreError as error:
        print(error)
"""

FLASK = """
import sys
from sqlalchemy import create_engine
from sqlalchemy.orm import scoped_session, sessionmaker
from holdfast import Holdfast, NotFoundError

app = Holdfast(f"{sys.argv[1]}?schema=flask")
engine = create_engine(sys.argv[1].replace("postgresql:", "postgresql+psycopg:"))
session = scoped_session(sessionmaker(engine))

kept = app.sync.submit("greet", connection=session)
session.commit()
(dropped,) = app.sync.submit_batch([{"type": "greet"}], connection=session).results
session.rollback()
print(app.sync.get(kept.job_id).state)
try:
    app.sync.get(dropped.job_id)
except NotFoundError:
    print("dropped")
session.remove()
"""


def _run(script: str, server: Postgres) -> tuple[list[str], str]:
    done = subprocess.run(
        [sys.executable, "-c", script, server.dsn],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.splitlines(), done.stderr


def test_django_view_submits_with_the_connection_it_imports(postgres_server: Postgres) -> None:
    output, errors = _run(DJANGO, postgres_server)

    assert "" == errors
    assert ["SCHEDULED", "dropped"] == output[:2]
    assert [
        "connection must be inside transaction.atomic()",
        "connection is in a transaction that Django will roll back",
    ] == output[2:]


def test_flask_view_submits_with_its_scoped_session(postgres_server: Postgres) -> None:
    output, errors = _run(FLASK, postgres_server)

    assert ("", ["SCHEDULED", "dropped"]) == (errors, output)


async def test_async_connection_is_refused_where_nothing_can_await_it(
    postgres_server: Postgres,
) -> None:
    app = Holdfast(postgres_server.dsn)
    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
        with pytest.raises(ValidationError, match="connection must be a blocking one here"):
            app.sync.submit("greet", connection=connection)
