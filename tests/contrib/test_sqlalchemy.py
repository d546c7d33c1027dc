"""Jobs that exist if and only if a session of SQLAlchemy commits, on any store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import Holdfast, NotFoundError, SubmissionResult, Task, ValidationError
from holdfast.contrib.sqlalchemy import SessionJobs, in_session
from tests.servers import Postgres

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The store; the session is always on PostgreSQL where the store is."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    server: Postgres = request.getfixturevalue("postgres_server")
    return f"{server.dsn}?schema=in_session"


@pytest.fixture
def app(url: str) -> Iterator[Holdfast]:
    made = Holdfast(url)
    yield made
    made.sync.close()


@pytest.fixture
def mail(app: Holdfast) -> Task[[str], None]:
    @app.task("mail.send")
    def send(to: str) -> None: ...

    return send


@pytest.fixture
def session(url: str, tmp_path: Path) -> Iterator[Session]:
    address = f"sqlite:///{tmp_path}/data.db"
    if url.startswith("postgresql"):
        address = url.partition("?")[0].replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(address)
    with Session(engine) as made:
        yield made
    engine.dispose()


@pytest.fixture
async def async_session(postgres_server: Postgres) -> AsyncIterator[AsyncSession]:
    address = postgres_server.dsn.replace("postgresql://", "postgresql+psycopg://")
    engine = create_async_engine(address)
    async with async_sessionmaker(engine)() as made:
        yield made
    await engine.dispose()


def _exists(app: Holdfast, job: SubmissionResult) -> bool:
    try:
        app.sync.get(job.job_id)
    except NotFoundError:
        return False
    return True


def test_job_exists_after_the_commit(
    app: Holdfast, mail: Task[[str], None], session: Session
) -> None:
    session.execute(text("SELECT 1"))
    job = in_session(session, mail).submit_sync("ada")
    assert not _exists(app, job)

    session.commit()

    assert _exists(app, job)
    session.commit()  # adds nothing again


def test_job_of_a_session_that_has_done_nothing_yet_waits_for_its_commit(
    app: Holdfast, mail: Task[[str], None], session: Session
) -> None:
    job = SessionJobs(session)(mail).submit_sync("ada")
    assert not _exists(app, job)

    session.commit()

    assert _exists(app, job)


def test_job_of_a_session_that_rolls_back_never_exists(
    app: Holdfast, mail: Task[[str], None], session: Session
) -> None:
    job = in_session(session, mail).submit_sync("ada")

    session.rollback()
    session.execute(text("SELECT 1"))
    session.commit()

    assert not _exists(app, job)


def test_savepoint_decides_about_its_own_jobs(
    app: Holdfast, mail: Task[[str], None], session: Session
) -> None:
    outer = in_session(session, mail).submit_sync("outer")
    with session.begin_nested():
        released = in_session(session, mail).submit_sync("released")
    assert not _exists(app, released), "a released savepoint is not a commit"
    nested = session.begin_nested()
    lost = in_session(session, mail).submit_sync("lost")
    nested.rollback()

    session.commit()

    assert [True, True, False] == [_exists(app, job) for job in (outer, released, lost)]


def test_faults_are_raised_where_the_job_is_submitted(
    mail: Task[[str], None], session: Session
) -> None:
    with pytest.raises(ValidationError, match="queue"):
        in_session(session, mail.using(queue="two words")).submit_sync("ada")


def test_scoped_session_is_the_session_of_this_thread(
    app: Holdfast, mail: Task[[str], None], session: Session
) -> None:
    scoped = scoped_session(sessionmaker(session.bind))
    job = in_session(scoped, mail).submit_sync("ada")
    assert not _exists(app, job)

    scoped.commit()
    scoped.remove()

    assert _exists(app, job)


@pytest.mark.postgres
async def test_async_session_commits_its_jobs(
    app: Holdfast, mail: Task[[str], None], async_session: AsyncSession
) -> None:
    async with app:
        kept = await in_session(async_session, mail).submit("ada")
        with pytest.raises(NotFoundError):
            await app.get(kept.job_id)
        await async_session.commit()
        lost = await in_session(async_session, mail).submit("ada")
        await async_session.rollback()

        assert kept.job_id == (await app.get(kept.job_id)).job_id
        with pytest.raises(NotFoundError):
            await app.get(lost.job_id)


async def test_session_must_be_of_the_caller_s_kind(
    mail: Task[[str], None], session: Session
) -> None:
    with pytest.raises(TypeError, match="AsyncSession"):
        await in_session(session, mail).submit("ada")
    with pytest.raises(TypeError, match="submit_sync needs a Session"):
        in_session(AsyncSession(), mail).submit_sync("ada")
