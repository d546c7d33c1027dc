"""Products that speak the protocol of PostgreSQL are refused at start, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import psycopg
import pytest

from holdfast.errors import StoreError
from holdfast.store.postgres import PostgresStore
from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "another_product"
VERSIONS = {
    "CockroachDB": "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15, go1.22.2)",
    "YugabyteDB": "PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang",
    "Redshift": "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC, Redshift 1.0.12103",
}


@pytest.fixture
def claiming_to_be(postgres_server: Postgres) -> Iterator[Callable[[str], str]]:
    """Return a URL under which the server claims another version: a function of its own says so."""

    def claim(version: str) -> str:
        with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            connection.execute(f"CREATE SCHEMA {SCHEMA}")
            connection.execute(
                f"CREATE FUNCTION {SCHEMA}.version() RETURNS text LANGUAGE sql"
                f" AS $$ SELECT '{version}'::text $$"
            )
        path = quote(f"-c search_path={SCHEMA},pg_catalog")
        return f"{postgres_server.dsn}?options={path}&schema=unused"

    yield claim
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


@pytest.mark.parametrize("product", VERSIONS)
async def test_product_is_refused_by_its_name(
    claiming_to_be: Callable[[str], str], product: str
) -> None:
    with pytest.raises(StoreError, match=f"the server is {product} .* cannot use: it "):
        await PostgresStore.from_url(claiming_to_be(VERSIONS[product])).start()


async def test_postgres_itself_is_accepted_under_any_build_name(
    claiming_to_be: Callable[[str], str],
) -> None:
    url = claiming_to_be("PostgreSQL 16.4 (AlloyDB 16.4) on x86_64-pc-linux-gnu")

    async with PostgresStore.from_url(url) as store:
        assert await store.queues() == []
