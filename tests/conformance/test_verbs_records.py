"""Small records beside the jobs: as durable, changed by version, listed in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast.runtime.clock import ManualClock
from holdfast.store import Record, RecordWrite
from tests.conformance.conftest import SERVED
from tests.conformance.stores import NAMES, PLACES

if TYPE_CHECKING:
    from holdfast.store import Store

LASTING = [pytest.param(n, marks=SERVED.get(n, ())) for n in NAMES if n != "memory"]


def write(key: str, data: bytes | None = b"x", version: int | None = None) -> RecordWrite:
    return RecordWrite(kind="k", key=key, data=data, version=version)


async def test_record_comes_back_as_it_was_kept(store: Store) -> None:
    data = bytes(range(256))

    assert [1] == await store.keep([write("a|b/\u00fc", data)])

    assert [Record("k", "a|b/\u00fc", data, 1), None] == await store.records(
        "k", ["a|b/\u00fc", "b"]
    )
    assert [None] == await store.records("other", ["a|b/\u00fc"])


async def test_every_change_raises_the_version(store: Store) -> None:
    answers = await store.keep([write("a", b"1"), write("a", b"2"), write("b", b"")])

    assert [1, 2, 1] == answers
    assert [b"2", b""] == [r.data for r in await store.records("k", ["a", "b"]) if r]


async def test_record_is_written_only_at_the_expected_version(store: Store) -> None:
    assert [None] == await store.keep([write("a", b"1", version=1)])
    assert [1, None] == await store.keep([write("a", b"1", version=0), write("a", version=0)])
    assert [None] == await store.keep([write("a", b"3", version=2)])
    assert [2] == await store.keep([write("a", b"2", version=1)])

    assert [Record("k", "a", b"2", 2)] == await store.records("k", ["a"])


async def test_record_is_dropped_only_at_the_expected_version(store: Store) -> None:
    await store.keep([write("a")])

    assert [None, None] == await store.keep([write("a", None, 2), write("a", None, 0)])
    assert [0, 0, None] == await store.keep(
        [write("a", None, 1), write("a", None), write("a", None, 1)]
    )
    assert [None] == await store.records("k", ["a"])
    assert [] == await store.browse("k")
    assert [1] == await store.keep([write("a")])


async def test_records_are_listed_by_key_in_both_directions(store: Store) -> None:
    keys = ["a/2", "b", "a/1", "a", "a/3", "\u00fc", "a/\U0001f600"]
    await store.keep([write(key, key.encode()) for key in keys])
    await store.keep([RecordWrite(kind="other", key="a/0", data=b"")])

    async def listed(**options: object) -> list[str]:
        return [r.key for r in await store.browse("k", **options)]

    assert sorted(keys) == await listed()
    assert sorted(keys, reverse=True) == await listed(last=True)
    assert ["a/1", "a/2", "a/3", "a/\U0001f600"] == await listed(prefix="a/")
    assert ["a/2", "a/3"] == await listed(prefix="a/", after="a/1", limit=2)
    assert ["a/2", "a/1"] == await listed(prefix="a/", after="a/3", last=True)
    assert ["a/\U0001f600"] == await listed(prefix="a/", last=True, limit=1)
    assert [] == await listed(prefix="zz")


async def test_one_of_many_racing_writers_wins(store: Store) -> None:
    await store.keep([write("a")])

    answers = await asyncio.gather(
        *(store.keep([write("a", str(n).encode(), 1)]) for n in range(20)),
        *(store.keep([write("new", b"", 0)]) for _ in range(20)),
    )

    assert [2] == [a for (a,) in answers[:20] if a is not None]
    assert [1] == [a for (a,) in answers[20:] if a is not None]


@pytest.mark.req("S-2")
@pytest.mark.parametrize("name", LASTING)
async def test_records_outlive_the_process(name: str, request: pytest.FixtureRequest) -> None:
    with PLACES[name](request) as place:
        one = await place.open(ManualClock()).start()
        await one.keep([write("a", b"1")])
        await one.close()

        two = await place.open(ManualClock()).start()
        assert [Record("k", "a", b"1", 1)] == await two.records("k", ["a"])
        await two.close()


async def test_nothing_asked_nothing_answered(store: Store) -> None:
    assert [] == await store.keep([])
    assert [] == await store.records("k", [])


async def test_kinds_are_those_that_have_records(store: Store) -> None:
    assert [] == await store.kinds()
    await store.keep([write("a"), RecordWrite(kind="acme/k", key="a", data=b"", version=0)])
    assert ["acme/k", "k"] == await store.kinds()

    await store.keep([write("a", None)])

    assert ["acme/k"] == await store.kinds()
