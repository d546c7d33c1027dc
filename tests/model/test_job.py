"""The values of the model."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.job import (
    DedupeKey,
    Event,
    Extra,
    Failure,
    FailureCategory,
    Job,
    Priority,
    State,
    attempt_id,
    attempts,
    extra_document,
    read_extra,
)
from tests.model.making import LATER, NOW, PERMANENT, TEMPORARY, job, running

METADATA = {
    "id",
    "created_at",
    "updated_at",
    "state",
    "attempt",
    "scheduled_at",
    "started_at",
    "finished_at",
    "type",
    "priority",
    "tags",
    "correlation_id",
    "callback_url",
    "queue",
}


@pytest.mark.req("M-13")
def test_a_job_has_every_field_of_the_metadata() -> None:
    assert set(Job.__struct_fields__) >= METADATA


@pytest.mark.req("M-4")
def test_priorities_are_five_and_lower_is_first() -> None:
    assert {"CRITICAL": 0, "HIGH": 1, "NORMAL": 2, "LOW": 3, "BULK": 4} == {
        level.name: level.value for level in Priority
    }


@pytest.mark.req("M-1", "M-12")
def test_a_job_cannot_be_changed_in_place() -> None:
    for field in Job.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(job(), field, None)


def test_states_and_events_are_found_by_equal_strings() -> None:
    assert 1 == {State.RUNNING: 1}["RUNNING"]
    assert 1 == {Event.GIVE_BACK: 1}["give_back"]


def test_a_job_survives_being_written_and_read() -> None:
    full = lifecycle.after_failure(
        running(payload=b"\x00", tags={"a": "b"}, idempotency_key="k"), TEMPORARY, now=LATER
    )

    assert full == msgspec.json.decode(msgspec.json.encode(full), type=Job)
    assert full == msgspec.msgpack.decode(msgspec.msgpack.encode(full), type=Job)


@pytest.mark.req("M-2")
def test_only_the_callers_own_key_is_shown_as_the_idempotency_key() -> None:
    ours = replace(job(), dedupe=DedupeKey("spawn:x", "0", "", None))
    tenants = replace(job(), dedupe=DedupeKey(f"{job().type}@acme/1f", "k", "", None))

    assert "k" == job(idempotency_key="k").idempotency_key
    assert "k" == tenants.idempotency_key
    assert "" == job().idempotency_key
    assert "" == ours.idempotency_key


@pytest.mark.req("M-10")
def test_every_claim_is_an_attempt_with_its_own_id() -> None:
    first = running()
    second = lifecycle.claimed(
        lifecycle.given_back(first, now=NOW), token="t2", worker="w", now=NOW
    )

    assert (0, f"{first.id}.0", None) == (job().lease_version, job().attempt_id, None)
    assert (f"{first.id}.1", None) == (first.attempt_id, first.previous_attempt_id)
    assert (f"{first.id}.2", f"{first.id}.1") == (second.attempt_id, second.previous_attempt_id)
    assert first.attempt_id == attempt_id(first.id, 1)


def _go_on(waiting: Job, token: str, at: int) -> Job:
    now = NOW + timedelta(seconds=at)
    ready = lifecycle.due(waiting, now=now) if waiting.state is State.RETRYING else waiting
    return lifecycle.claimed(ready, token=token, worker=f"w-{token}", now=now)


@pytest.mark.req("M-10", "A-14")
def test_the_history_has_every_attempt_and_its_end() -> None:
    def at(seconds: int) -> object:
        return NOW + timedelta(seconds=seconds)

    one = _go_on(job(max_attempts=3), "t1", 0)
    two = _go_on(lifecycle.given_back(one, now=at(1)), "t2", 2)
    three = _go_on(lifecycle.lease_lost(two, now=at(3)), "t3", 4)
    four = _go_on(lifecycle.after_failure(three, TEMPORARY, now=at(5)), "t4", 6)
    failed = lifecycle.after_failure(four, PERMANENT, now=at(7))
    five = _go_on(lifecycle.reopened(failed, now=at(8)), "t5", 9)

    found = attempts(five.id, list(five.trail))

    assert [
        (1, "w-t1", at(0), at(1), Event.GIVE_BACK, None),
        (1, "w-t2", at(2), at(3), Event.LAPSE, "lease expired"),
        (2, "w-t3", at(4), at(5), Event.RETRY, "try again"),
        (3, "w-t4", at(6), at(7), Event.FAIL, "never works"),
        (4, "w-t5", at(9), None, None, None),
    ] == [
        (
            a.number,
            a.worker,
            a.started_at,
            a.finished_at,
            a.ended_by,
            a.failure.message if a.failure else None,
        )
        for a in found
    ]
    assert [f"{five.id}.{n}" for n in (1, 2, 3, 4, 5)] == [a.id for a in found]
    assert [None, *[a.id for a in found[:-1]]] == [a.previous_id for a in found]
    assert [1, 2, 3, 4, 5] == [a.lease_version for a in found]


@pytest.mark.req("M-10", "S-5")
def test_a_late_outcome_belongs_to_its_own_attempt() -> None:
    lapsed = lifecycle.lease_lost(running(), now=NOW)
    done = lifecycle.completed(lifecycle.resumed(lapsed, now=LATER), None, now=LATER)

    (found,) = attempts(done.id, list(done.trail))

    assert (Event.COMPLETE, LATER, None) == (found.ended_by, found.finished_at, found.failure)


def test_a_history_that_begins_in_the_middle_has_the_remaining_attempts() -> None:
    done = lifecycle.completed(running(), None, now=LATER)

    assert [] == attempts(done.id, [done.trail[-1]])
    assert [] == attempts(done.id, [])


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("KeyError", "KeyError: 'x'"),
        ("", "'x'"),
        ("'x'", "'x'"),
        ("TEMPORARY", "'x'"),
    ],
)
def test_failure_is_shown_with_its_code_unless_that_adds_nothing(code: str, text: str) -> None:
    failure = Failure(category=FailureCategory.TEMPORARY, message="'x'", code=code)

    assert text == str(failure)


def test_plain_fields_at_their_defaults_need_no_document() -> None:
    assert extra_document(Extra()) is None
    assert Extra() == read_extra(None)


def test_plain_fields_of_a_later_program_are_ignored() -> None:
    assert Extra() == read_extra(b'{"$sealed":"v1","unheard_of":1}')


def test_headers_are_kept_in_the_document() -> None:
    document = extra_document(Extra(headers={"a": "b"}))

    assert b'{"headers":{"a":"b"}}' == document
    assert {"a": "b"} == read_extra(document).headers
