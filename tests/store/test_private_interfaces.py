"""What the PostgreSQL store uses of psycopg and Django beyond their documentation.

Such an interface may change in any release. The bounds in ``pyproject.toml`` name the releases
that were checked; when one of them is raised, the test that fails here names what changed.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import struct
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pytest
from psycopg.pq import ConnStatus, ExecStatus, Format, PGconn, TransactionStatus
from psycopg_pool import AsyncConnectionPool

from holdfast.store import connections
from tests.architecture.tree import ROOT

if TYPE_CHECKING:
    from tests.servers import Postgres

PACKAGES = ("psycopg", "psycopg-pool", "django")


@pytest.mark.parametrize("package", PACKAGES)
def test_release_is_bounded_above(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = [
        *project["project"]["optional-dependencies"]["postgres"],
        *project["dependency-groups"]["test"],
    ]

    (requirement,) = [each for each in asked if re.match(rf"{package}(\[\w+\])?[<>=]", each)]

    assert ",<" in requirement


def wait_and_ready() -> None:
    from psycopg.waiting import Ready, Wait

    assert (1, 2) == (Wait.R, Wait.W)
    assert (0, 1, 2) == (Ready.NONE, Ready.R, Ready.W)


def connection_wait() -> None:
    parameters = list(inspect.signature(psycopg.AsyncConnection.wait).parameters)
    assert ["self", "gen", "interval"] == parameters[:3]
    assert {*parameters[3:]} <= {"timeout"}  # 3.3 has it, 3.2 does not


def connection_over_a_line() -> None:
    for kind in (psycopg.Connection, psycopg.AsyncConnection):
        made = kind(PGconn.connect_start(b"="))
        assert made.closed
        assert hasattr(made, "_num_transactions")


def closed_line() -> None:
    line = PGconn.connect_start(b"=")
    assert ConnStatus.BAD == line.status
    assert TransactionStatus.UNKNOWN == line.transaction_status


def record_loader() -> None:
    from psycopg.types.composite import RecordBinaryLoader

    record = struct.pack("!iIii", 1, 23, 4, 42)
    assert (42,) == RecordBinaryLoader(2249, psycopg.adapters).load(record)


def bytea_loader() -> None:
    from psycopg.types.string import ByteaBinaryLoader

    assert b"{}" == ByteaBinaryLoader(17, None).load(b"{}")


def parameters_of_libpq() -> None:
    from psycopg.pq import Conninfo

    assert b"host" in [option.keyword for option in Conninfo.get_defaults()]


def django_proxy() -> None:
    from django.db.utils import ConnectionHandler
    from django.utils.connection import ConnectionProxy

    handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.postgresql"}})
    proxy = ConnectionProxy(handler, "default")
    assert "django.ConnectionProxy" == connections.kinds(proxy)[0]
    # What is checked here.
    assert proxy._connections[proxy._alias] is handler["default"]
    assert handler["default"] is connections.unwrapped(proxy)


def django_wrapper() -> None:
    from django.db.backends.postgresql.base import DatabaseWrapper

    wrapper = DatabaseWrapper({})
    assert "django.BaseDatabaseWrapper" in connections.kinds(wrapper)
    states = (wrapper.connection, wrapper.in_atomic_block, wrapper.needs_rollback)
    assert (None, False, False) == states


INTERFACES: dict[str, Callable[[], None]] = {
    "psycopg.waiting.Wait and Ready": wait_and_ready,
    "psycopg.AsyncConnection.wait(gen, interval, timeout)": connection_wait,
    "psycopg.Connection(pgconn)": connection_over_a_line,
    "psycopg.pq.PGconn.connect_start does not raise": closed_line,
    "psycopg.types.composite.RecordBinaryLoader(oid, context)": record_loader,
    "psycopg.types.string.ByteaBinaryLoader": bytea_loader,
    "psycopg.pq.Conninfo.get_defaults": parameters_of_libpq,
    "django.utils.connection.ConnectionProxy._connections and _alias": django_proxy,
    "django.db.backends.base.base.BaseDatabaseWrapper.in_atomic_block": django_wrapper,
}


@pytest.mark.parametrize("name", INTERFACES)
def test_interface_is_there(name: str) -> None:
    with _named(name):
        INTERFACES[name]()


class Heard(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that counts what passes through ``wait``."""

    waits = 0

    async def wait(self, *args: Any, **kwargs: Any) -> Any:
        self.waits += 1
        return await super().wait(*args, **kwargs)


@pytest.fixture
async def heard(postgres_server: Postgres) -> AsyncIterator[Heard]:
    async with await Heard.connect(postgres_server.dsn, autocommit=True) as connection:
        yield connection


async def everything_waits_there(heard: Heard) -> None:
    waits = heard.waits
    await heard.execute("SELECT 1")
    assert heard.waits > waits


async def execute_generator(heard: Heard) -> None:
    heard.pgconn.send_query(b"SELECT 1; SELECT 2")
    results = await _answers(heard)
    assert [ExecStatus.TUPLES_OK] * 2 == [result.status for result in results]


async def execute_yields_what_to_wait_for(heard: Heard) -> None:
    from psycopg.generators import execute
    from psycopg.waiting import Ready, Wait

    def goes_on() -> Generator[int, int, list[Any]]:
        """As after a wait that was cancelled."""
        ready = Ready.NONE
        while True:
            try:
                ready = yield started.send(ready)
            except StopIteration as end:
                return list(end.value)

    heard.pgconn.send_query(b"SELECT 1")
    started: Generator[int, int, list[Any]] = execute(heard.pgconn)
    assert next(started) & (Wait.R | Wait.W)
    assert 1 == len(await heard.wait(goes_on()))


async def prepared_statements(heard: Heard) -> None:
    heard.pgconn.send_prepare(b"private", b"SELECT $1 + 1", [20])
    await _answers(heard)
    one = [struct.pack("!q", 1)]
    heard.pgconn.send_query_prepared(b"private", one, [Format.BINARY], Format.BINARY)
    (result,) = await _answers(heard)
    assert struct.pack("!q", 2) == result.get_value(0, 0)


async def transformer(heard: Heard) -> None:
    from psycopg.adapt import Transformer

    heard.pgconn.send_query(b"SELECT 1, 'a' UNION ALL SELECT 2, 'b'")
    (result,) = await _answers(heard)
    made = Transformer(heard)
    made.set_pgresult(result)
    assert [(1, "a"), (2, "b")] == made.load_rows(0, result.ntuples, tuple)
    made.set_pgresult(None)


async def error_of_a_result(heard: Heard) -> None:
    from psycopg.errors import SyntaxError as BadSyntax
    from psycopg.errors import error_from_result

    heard.pgconn.send_query(b"SELEC 1")
    (result,) = await _answers(heard)
    error = error_from_result(result, encoding="utf-8")
    assert isinstance(error, BadSyntax)


async def refusing_to_commit(heard: Heard) -> None:
    lent = psycopg.AsyncConnection(heard.pgconn)
    lent._num_transactions = 1  # what is checked here
    await heard.execute("BEGIN")
    assert (1,) == await (await lent.execute("SELECT 1")).fetchone()
    for end in (lent.commit, lent.rollback):
        with pytest.raises(psycopg.ProgrammingError, match="forbidden"):
            await end()
    await heard.execute("ROLLBACK")
    lent.pgconn = PGconn.connect_start(b"=")


async def exchanging_the_line(heard: Heard) -> None:
    lent = psycopg.AsyncConnection(heard.pgconn)
    lent.pgconn = PGconn.connect_start(b"=")
    assert lent.closed
    with pytest.raises(psycopg.OperationalError, match="closed"):
        await lent.execute("SELECT 1")
    assert (1,) == await (await heard.execute("SELECT 1")).fetchone()


class Told(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that is opened with a parameter of its own."""

    @classmethod
    async def connect(  # type: ignore[override]  # only the pool below calls it
        cls, conninfo: str, *, tried: Callable[[Exception | None], None], **how: Any
    ) -> Self:
        tried(None)
        return await super().connect(conninfo, **how)


async def pool_connects_with_the_class(heard: Heard) -> None:
    tried: list[Exception | None] = []
    pool = AsyncConnectionPool(
        f"{heard.info.dsn} application_name=private",
        connection_class=Told,
        kwargs={"tried": tried.append},
        min_size=1,
        open=False,
    )
    async with pool, pool.connection() as connection:
        assert isinstance(connection, Told)
    assert [None] == tried


BEHAVIOUR: dict[str, Callable[[Heard], Awaitable[None]]] = {
    "psycopg.AsyncConnection.wait runs every statement": everything_waits_there,
    "psycopg.generators.execute returns every result": execute_generator,
    "psycopg.generators.execute yields what to wait for": execute_yields_what_to_wait_for,
    "psycopg.pq.PGconn.send_prepare and send_query_prepared": prepared_statements,
    "psycopg.adapt.Transformer.set_pgresult and load_rows": transformer,
    "psycopg.errors.error_from_result(result, encoding)": error_of_a_result,
    "psycopg.AsyncConnection._num_transactions forbids commit()": refusing_to_commit,
    "psycopg.AsyncConnection.pgconn can be exchanged": exchanging_the_line,
    "psycopg_pool.AsyncConnectionPool passes kwargs to connect": pool_connects_with_the_class,
}


@pytest.mark.postgres
@pytest.mark.parametrize("name", BEHAVIOUR)
async def test_interface_behaves(name: str, heard: Heard) -> None:
    with _named(name):
        await BEHAVIOUR[name](heard)


async def _answers(connection: Heard) -> list[Any]:
    from psycopg.generators import execute

    return list(await connection.wait(execute(connection.pgconn)))


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Say which interface of which release is not what it was."""
    package = name.partition(".")[0].replace("_", "-")
    try:
        yield
    except Exception as error:
        told = f"{package} {version(package)} no longer has what holdfast relies on"
        raise AssertionError(f"{told}: {name}: {error!r}") from error
