"""The four profiles: their defaults and their names of states."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import ValidationError
from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.job import Event, Failure, FailureCategory, Job, Priority, State
from holdfast.model.policy import Backoff, BackoffKind
from holdfast.model.profiles import (
    BULLMQ,
    DOCUMENT,
    LEASE,
    PROFILES,
    STANDARD,
    ErrorType,
    Profile,
    bullmq_word,
    canonical,
    document_metadata,
    document_word,
    lease_word,
    profile_named,
    stored_profile,
)
from holdfast.model.submission import Defaults, Submission
from tests.model.making import LATER, NOW, PERMANENT, TEMPORARY, in_state, job, running

SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=7)

# attempts, backoff, lease, renewal, timeout, lifetime, priority
TABLE = {
    "standard": (
        3,
        Backoff(
            strategy=BackoffKind.EXPONENTIAL,
            initial_delay=SECOND,
            max_delay=timedelta(hours=1),
            multiplier=2.0,
            jitter=False,
        ),
        15 * SECOND,
        5 * SECOND,
        30 * MINUTE,
        DAY,
        Priority.NORMAL,
    ),
    "lease": (
        4,
        Backoff(
            strategy=BackoffKind.FULL_JITTER,
            initial_delay=SECOND / 2,
            max_delay=30 * SECOND,
            multiplier=2.0,
            jitter=False,
        ),
        5 * SECOND,
        5 * SECOND / 3,
        5 * MINUTE,
        DAY,
        Priority.NORMAL,
    ),
    "document": (
        4,
        Backoff(
            strategy=BackoffKind.CONSTANT,
            initial_delay=SECOND,
            max_delay=SECOND,
            multiplier=2.0,
            jitter=False,
        ),
        30 * SECOND,
        10 * SECOND,
        30 * MINUTE,
        DAY,
        Priority.NORMAL,
    ),
    "bullmq": (
        3,
        Backoff(
            strategy=BackoffKind.EXPONENTIAL,
            initial_delay=SECOND,
            max_delay=timedelta(hours=1),
            multiplier=2.0,
            jitter=False,
        ),
        30 * SECOND,
        10 * SECOND,
        30 * MINUTE,
        DAY,
        Priority.CRITICAL,
    ),
}


@pytest.mark.req("M-6", "M-7", "L-1", "B-2")
@pytest.mark.parametrize("name", TABLE)
def test_defaults_are_exactly_those_of_the_contract(name: str) -> None:
    profile = PROFILES[name]

    assert TABLE[name] == (
        profile.max_attempts,
        profile.backoff,
        profile.lease,
        profile.heartbeat,
        profile.timeout,
        profile.lifetime,
        profile.priority,
    )


def test_there_are_four_profiles_by_name() -> None:
    assert [STANDARD, LEASE, DOCUMENT, BULLMQ] == list(PROFILES.values())
    assert list(TABLE) == list(PROFILES)
    assert [canonical, lease_word, document_word, bullmq_word] == [
        profile.word for profile in PROFILES.values()
    ]


# state: canonical, leases, documents, BullMQ
WORDS = """
    PENDING     Ready     CREATED   waiting
    SCHEDULED   Ready     QUEUED    prioritized
    DELAYED     Ready     QUEUED    delayed
    RUNNING     InFlight  RUNNING   active
    RETRYING    Ready     RETRYING  delayed
    COMPLETED   Succeeded SUCCEEDED completed
    FAILED      Failed    FAILED    failed
    DEAD_LETTER Failed    FAILED    failed
    CANCELLED   Failed    FAILED    failed
"""


@pytest.mark.req("L-1", "B-2")
@pytest.mark.parametrize("row", WORDS.strip().splitlines())
def test_every_state_has_its_word_in_every_vocabulary(row: str) -> None:
    state, *words = row.split()

    found = [profile.word(in_state(State(state))) for profile in PROFILES.values()]

    assert [state, *words] == found


@pytest.mark.req("B-2")
def test_bullmq_keeps_waiting_jobs_by_priority_and_dependencies() -> None:
    assert "waiting" == bullmq_word(job(priority=0))
    assert ["prioritized"] * 4 == [bullmq_word(job(priority=n)) for n in (1, 2, 3, 4)]
    assert "waiting-children" == bullmq_word(replace(job(hold=True), depends_on=("a",)))


@pytest.mark.req("B-2")
def test_a_job_without_a_priority_is_normal_except_under_bullmq() -> None:
    found = {p.name: job(defaults=Defaults(profile=p)).priority for p in PROFILES.values()}

    assert {"standard": 2, "lease": 2, "document": 2, "bullmq": 0} == found


DOCUMENT_EDGES = {
    ("CREATED", "QUEUED"),
    ("QUEUED", "RUNNING"),
    ("RUNNING", "SUCCEEDED"),
    ("RUNNING", "FAILED"),
    ("RUNNING", "RETRYING"),
    ("RETRYING", "QUEUED"),
    ("QUEUED", "FAILED"),
}


@pytest.mark.req("L-1", "L-3")
def test_documents_move_only_along_the_edges_of_their_lifecycle() -> None:
    """Besides those, a job may be cancelled or expire anywhere, an operator may reopen it, and a
    handler may let it wait for the jobs it spawned."""
    out_of_band = {Event.CANCEL, Event.EXPIRE, Event.INHERIT, Event.REOPEN, Event.SUBMIT}
    out_of_band |= {Event.WAIT}
    seen = {
        (document_word(_at(before)), document_word(_at(after)))
        for before, event, after in lifecycle.TABLE
        if event not in out_of_band and before is not None
    }

    assert DOCUMENT_EDGES - {("QUEUED", "FAILED")} == seen - {("QUEUED", "QUEUED")}
    assert ("QUEUED", "FAILED") == (
        document_word(job()),
        document_word(lifecycle.cancelled(job(), now=NOW)),
    )


def _at(state: State) -> Job:
    return replace(job(), state=state)


def _document(**fields: object) -> Job:
    return job(defaults=Defaults(profile=DOCUMENT), **fields)


@pytest.mark.req("L-4")
def test_a_document_that_fails_until_its_retries_are_used_up_counts_them() -> None:
    current, counted, at = _document(), [], NOW
    for n in range(4):
        current = lifecycle.claimed(current, token=f"t{n}", worker="w", now=at)
        counted.append((document_word(current), document_metadata(current).retry_count))
        current = lifecycle.after_failure(current, TEMPORARY, now=at)
        counted.append((document_word(current), document_metadata(current).retry_count))
        if current.state is State.RETRYING:
            assert timedelta(seconds=1) == current.due_at - at
            at = current.due_at
            current = lifecycle.due(current, now=at)
            counted.append((document_word(current), document_metadata(current).retry_count))

    assert [
        ("RUNNING", 0),
        ("RETRYING", 1),
        ("QUEUED", 1),
        ("RUNNING", 1),
        ("RETRYING", 2),
        ("QUEUED", 2),
        ("RUNNING", 2),
        ("RETRYING", 3),
        ("QUEUED", 3),
        ("RUNNING", 3),
        ("FAILED", 3),
    ] == counted


@pytest.mark.req("L-4")
def test_document_metadata_is_spelt_in_camel_case() -> None:
    found = msgspec.to_builtins(document_metadata(in_state(State.FAILED, max_attempts=4)))

    assert {
        "retryCount": 0,
        "maxRetries": 3,
        "lastError": "never works",
        "errorType": "TERMINAL",
    } == found


@pytest.mark.req("L-4")
@pytest.mark.parametrize(
    ("ended", "error_type"),
    [
        (in_state(State.COMPLETED), None),
        (in_state(State.SCHEDULED), None),
        (in_state(State.RETRYING), ErrorType.RETRYABLE),
        (in_state(State.DEAD_LETTER), ErrorType.RETRYABLE),
        (in_state(State.FAILED), ErrorType.TERMINAL),
        (in_state(State.CANCELLED), ErrorType.TERMINAL),
        (
            lifecycle.after_failure(
                running(retry_timeouts=False),
                Failure(category=FailureCategory.TIMEOUT, message="too slow"),
                now=LATER,
            ),
            ErrorType.TERMINAL,
        ),
        (
            lifecycle.reopened(lifecycle.after_failure(running(), PERMANENT, now=LATER), now=LATER),
            ErrorType.TERMINAL,
        ),
    ],
)
def test_the_error_type_shows_whether_the_last_error_may_be_retried(
    ended: Job, error_type: ErrorType | None
) -> None:
    found = document_metadata(ended)

    assert error_type == found.error_type
    assert (error_type is None) == (found.last_error is None)


def test_a_custom_profile_needs_a_name_and_a_vocabulary() -> None:
    mine = Profile(name="mine", word=canonical)

    assert (3, Backoff(), 15 * SECOND) == (mine.max_attempts, mine.backoff, mine.lease)


def test_a_profile_is_found_by_name_or_given_as_it_is() -> None:
    mine = Profile(name="mine", word=canonical)

    assert (LEASE, mine) == (profile_named("lease"), profile_named(mine))
    with pytest.raises(ValueError, match="one of standard, lease, document, bullmq, got 'x'"):
        profile_named("x")


def test_a_profile_is_kept_by_its_values_and_read_with_the_words_of_its_name() -> None:
    for profile in PROFILES.values():
        assert profile == stored_profile(profile.values)
    own = Profile(name="own", max_attempts=9, word=lease_word)

    read = stored_profile(own.values)

    assert (own.values, canonical) == (read.values, read.word)


@pytest.mark.req("B-3")
@pytest.mark.parametrize(
    ("backoff", "field"),
    [
        ({"strategy": "LINEAR"}, "backoff.strategy"),
        ({"strategy": "CUSTOM"}, "backoff.strategy"),
        ({"strategy": "CONSTANT", "initial_delay": 0}, "backoff.initial_delay"),
        ({"max_delay": 3601}, "backoff.max_delay"),
        ({"multiplier": 3}, "backoff.multiplier"),
    ],
)
def test_bullmq_profile_refuses_backoffs_that_node_does_not_have(
    backoff: dict[str, object], field: str
) -> None:
    given = Submission(type="t", backoff=backoff)
    with pytest.raises(ValidationError) as refused:
        accept(given, job_id="1", now=NOW, defaults=Defaults(profile=BULLMQ))

    assert [field] == [fault.field for fault in refused.value.faults]


@pytest.mark.req("B-3")
@pytest.mark.parametrize("strategy", ["CONSTANT", "EXPONENTIAL"])
def test_bullmq_profile_takes_fixed_and_exponential_backoffs_up_to_an_hour(strategy: str) -> None:
    given = Submission(
        type="t", backoff={"strategy": strategy, "initial_delay": 600, "jitter": True}
    )
    job = accept(given, job_id="1", now=NOW, defaults=Defaults(profile=BULLMQ))

    assert timedelta(hours=1) >= job.backoff.delay(40, jitter=1.0)
