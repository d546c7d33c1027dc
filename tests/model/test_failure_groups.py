"""Messages without their values, and bounded books of groups."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.model.failure_groups import (
    MOST_GROUPS,
    MOST_KEPT,
    OTHER,
    added,
    entries_of,
    group_of,
    normalised,
    summed,
)
from holdfast.model.job import Failure, FailureCategory, Job, State
from tests.model.making import NOW, in_state

SECOND = timedelta(seconds=1)


def _failed(
    message: str, *, code: str = "E", type_: str = "t", id_: str = "a", after: int = 0
) -> Job:
    at = NOW + after * SECOND
    failure = Failure(category=FailureCategory.PERMANENT, code=code, message=message, at=at)
    return replace(in_state(State.FAILED), id=id_, type=type_, failure=failure)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", ""),
        ("no such host", "no such host"),
        ("user 42 not found", "user <number> not found"),
        ("took 1.5e3 s, 12:30:05", "took <number> s, <number>"),
        ("job 3f2a9c1e-0b1d-4c5e-8f00-1234567890ab", "job <uuid>"),
        ("object at 0x7f3a2b", "object at <hex>"),
        ("commit deadbeef01 missing", "commit <hex> missing"),
        ("the facade decades", "the facade decades"),
        ("key 'alice' or \"bob\" or `c`", "key <text> or <text> or <text>"),
        ("cannot open /var/lib/app/17.db now", "cannot open <path> now"),
        (r"cannot open C:\data\x.txt", "cannot open <path>"),
        ("GET https://a.example/b?c=1 failed", "GET <url> failed"),
        ("two\n lines\tand  blanks", "two lines and blanks"),
        ("it's half a quote", "it's half a quote"),
        ("and/or", "and/or"),
    ],
)
def test_values_of_a_message_become_placeholders(message: str, expected: str) -> None:
    assert expected == normalised(message)


@given(st.text())
def test_any_message_has_a_bounded_normal_form(message: str) -> None:
    text = normalised(message * 50)

    assert len(text) <= MOST_KEPT
    assert "\n" not in text


@pytest.mark.parametrize("bit", ["'", '"', "/a", "0", "a0", "x://", "-", "0x", "a" * 8, ":1"])
def test_a_hostile_message_is_normalised_in_time(bit: str) -> None:
    assert len(normalised(bit * 500_000)) <= MOST_KEPT


def test_failures_that_differ_in_values_are_one_group() -> None:
    jobs = [_failed("user 1", id_="a", after=2), _failed("user 2", id_="b", after=1)]

    ((group, entry),) = entries_of(jobs).items()

    assert group == group_of(
        "t", Failure(category=FailureCategory.SYSTEM, code="E", message="user 3")
    )
    assert ("user <number>", 2, "a") == (entry.message, entry.count, entry.job_id)
    assert (NOW + SECOND, NOW + 2 * SECOND) == (entry.first, entry.last)


def test_type_and_code_divide_groups() -> None:
    jobs = [_failed("x"), _failed("x", code="F"), _failed("x", type_="u"), _failed("y")]

    assert 4 == len(entries_of(jobs))


def test_a_job_without_failure_is_in_no_group() -> None:
    assert {} == entries_of([replace(_failed("x"), failure=None)])


def test_a_failure_without_time_counts_when_its_job_changed() -> None:
    job = _failed("x")
    assert job.failure is not None
    job = replace(job, failure=replace(job.failure, at=None), updated_at=NOW)

    (entry,) = entries_of([job]).values()

    assert NOW == entry.last


def test_a_book_is_bounded_and_counts_the_rest_as_other() -> None:
    jobs = [_failed("x" + "y" * n, id_=str(n)) for n in range(MOST_GROUPS + 10)]

    book = added({}, entries_of(jobs))
    again = added(book, entries_of(jobs))

    assert MOST_GROUPS + 1 == len(book) == len(again)
    assert 10 == book[OTHER].count
    assert 2 * len(jobs) == sum(entry.count for entry in again.values())


def test_books_sum_up_to_groups_with_a_series() -> None:
    few, many = entries_of([_failed("few")]), entries_of([_failed("m", id_=str(n)) for n in "123"])
    books = [(10, few), (12, many), (12, few), (9, many), (13, many)]

    first, second = summed(books, first=10, steps=3)

    assert ("m", 3, (0, 0, 3)) == (first.message, first.count, first.series)
    assert ("few", 2, (1, 0, 1)) == (second.message, second.count, second.series)
