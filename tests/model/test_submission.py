"""From a submission to a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from msgspec import Raw

from holdfast.errors import Fault, ValidationError
from holdfast.model.acceptance import NO_DEFAULTS, PlainJobs, accept, plain, read
from holdfast.model.job import DependencyKind, Encoding, Event, Job, Priority, State
from holdfast.model.payload import raw_size
from holdfast.model.policy import MEBIBYTE, Backoff, BackoffKind, Limits
from holdfast.model.profiles import BULLMQ, LEASE
from holdfast.model.submission import (
    Declaration,
    Defaults,
    Parent,
    Spawner,
    Submission,
    defaults_for,
    named_jobs,
)
from holdfast.runtime.randomness import Randomness
from tests.model.making import ID, LATER, NOW, faults, job, refusal

SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)


def _reported(**fields: object) -> str:
    """The only message about a submission."""
    (fault,) = refusal(**fields).faults
    return str(fault)


@pytest.mark.req("M-13", "M-3")
def test_a_submission_with_only_a_type_gets_every_default() -> None:
    plain = job()

    assert (
        Job(
            id=ID,
            type="mail.send",
            queue="default",
            payload=b"null",
            encoding=Encoding.JSON,
            profile="standard",
            created_at=NOW,
            updated_at=NOW,
            timeout=30 * MINUTE,
            lease_ttl=15 * SECOND,
            lifetime=7 * DAY,
            expires_at=NOW + 7 * DAY,
            backoff=Backoff(),
            retry_timeouts=True,
            retry_crashes=True,
            priority=2,
            max_attempts=3,
            state=State.SCHEDULED,
            scheduled_at=NOW,
            revision=1,
            trail=plain.trail,
        )
        == plain
    )
    assert [Event.SUBMIT, Event.ENQUEUE] == [edge.event for edge in plain.trail]


@pytest.mark.req("M-13")
def test_every_field_of_a_submission_is_in_the_job() -> None:
    full = job(
        payload={"to": "a@b.c"},
        queue="mail",
        priority="HIGH",
        delay="PT1M",
        timeout=20,
        lifetime="P1D",
        lease=5,
        max_attempts=7,
        backoff={"strategy": "LINEAR", "initial_delay": "PT2S", "max_delay": 60},
        retry_timeouts=False,
        retry_crashes=False,
        idempotency_key="k",
        idempotency_window="PT1H",
        correlation_id="trace-1",
        tags={"tenant": "acme"},
        callback_url="https://example.com/hook?x=1",
        limit_key="acme",
        ref="a",
    )

    assert (b'{"to":"a@b.c"}', "mail", 1, State.DELAYED) == (
        full.payload,
        full.queue,
        full.priority,
        full.state,
    )
    assert (LATER, 20 * SECOND, DAY, 5 * SECOND, NOW + DAY) == (
        full.due_at,
        full.timeout,
        full.lifetime,
        full.lease_ttl,
        full.expires_at,
    )
    linear = Backoff(strategy=BackoffKind.LINEAR, initial_delay=2 * SECOND, max_delay=60 * SECOND)
    assert (7, linear) == (full.max_attempts, full.backoff)
    assert (False, False) == (full.retry_timeouts, full.retry_crashes)
    assert ("k", "trace-1", {"tenant": "acme"}, "https://example.com/hook?x=1", "acme") == (
        full.idempotency_key,
        full.correlation_id,
        full.tags,
        full.callback_url,
        full.limit_key,
    )
    assert NOW + timedelta(hours=1) == full.dedupe.expires_at


@pytest.mark.req("S-12", "M-1")
def test_accepting_again_with_the_same_id_and_time_gives_the_same_job() -> None:
    assert job(payload=[1], tags={"a": "b"}) == job(payload=[1], tags={"a": "b"})


@pytest.mark.req("S-12", "M-13")
@pytest.mark.parametrize("queue", [None, "mail", "", "lease"])
@pytest.mark.parametrize("priority", [None, "HIGH", 1, True, Priority.LOW, 9, [1]])
@pytest.mark.parametrize("payload", [None, {"a": 1}, b"raw", float("nan"), "x" * 30])
def test_plain_submissions_are_accepted_or_refused_like_all_others(
    queue: str | None, priority: int, payload: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = Defaults(profile=LEASE, limits=Limits(payload_bytes=30), max_attempts=7)
    given = Submission(type="mail.send", queue=queue, priority=priority, payload=payload)

    def outcome() -> Job | list[Fault]:
        try:
            return accept(given, job_id=ID, now=LATER, defaults=defaults)
        except ValidationError as error:
            return list(error.faults)

    short = outcome()
    monkeypatch.setattr("holdfast.model.acceptance.plain", lambda *_: None)

    assert outcome() == short


def test_plain_jobs_of_one_instant_share_their_history() -> None:
    given = [Submission(type=type_, payload=type_) for type_ in "aba"]
    usual = [one for each in given if (one := plain(each, NO_DEFAULTS))]
    plain_jobs = PlainJobs(NOW)
    first, other, third = (plain_jobs.job(one, ID) for one in usual)

    assert first.trail is third.trail
    assert [("a", b'"a"'), ("b", b'"b"')] == [(job.type, job.payload) for job in (first, other)]


@pytest.mark.req("M-1")
@pytest.mark.parametrize("name", ["id", "job_id"])
def test_a_caller_cannot_choose_the_id(name: str) -> None:
    assert f"{name} must not be given: the system assigns it" == _reported(**{name: "x"})


@pytest.mark.req("M-1")
def test_ids_are_random_uuids_of_version_4() -> None:
    ids = {Randomness().uuid() for _ in range(100)} | set(Randomness().uuids(100))

    assert 200 == len(ids)
    assert {(4, RFC_4122)} == {(UUID(one).version, UUID(one).variant) for one in ids}
    assert ids == {str(UUID(one)) for one in ids}


@pytest.mark.req("M-1")
def test_ids_drawn_together_are_adjacent_and_share_nothing_else() -> None:
    together, others = Randomness().uuids(1000), Randomness().uuids(1000)

    assert 2000 == len({*together, *others})
    assert 2 == len({one[:8] for one in [*together, *others]})
    rest = [UUID(one).int & ~UUID("ffffffff-0000-f000-c000-000000000000").int for one in together]
    shared = [bit for bit in range(128) if 1 == len({number >> bit & 1 for number in rest})]
    assert [62, 63, *range(76, 80), *range(96, 128)] == shared


@pytest.mark.req("A-3")
def test_every_fault_is_reported_at_once_with_field_code_and_message() -> None:
    error = refusal(
        type="bad type",
        typo=1,
        payload=float("nan"),
        queue="",
        priority="URGENT",
        delay=-1,
        hold="yes",
        timeout="1 minute",
        lifetime=0,
        lease=0.01,
        max_attempts=0,
        backoff={"multiplier": 0},
        retry_timeouts=1,
        retry_crashes="no",
        idempotency_key="",
        idempotency_window=0,
        correlation_id=5,
        tags=["a"],
        depends_on="a",
        dependency_type="FAN_OUT",
        callback_url="ftp://x",
        limit_key="\x00",
        ref=[],
    )

    assert [
        ("typo", "UNKNOWN_FIELD"),
        ("type", "INVALID"),
        ("payload", "NOT_FINITE"),
        ("queue", "INVALID"),
        ("priority", "INVALID"),
        ("delay", "INVALID_DURATION"),
        ("hold", "INVALID"),
        ("timeout", "INVALID_DURATION"),
        ("lifetime", "OUT_OF_RANGE"),
        ("lease", "OUT_OF_RANGE"),
        ("max_attempts", "OUT_OF_RANGE"),
        ("backoff.multiplier", "OUT_OF_RANGE"),
        ("retry_timeouts", "INVALID"),
        ("retry_crashes", "INVALID"),
        ("idempotency_key", "INVALID"),
        ("idempotency_window", "OUT_OF_RANGE"),
        ("correlation_id", "INVALID"),
        ("tags", "INVALID"),
        ("depends_on", "INVALID"),
        ("dependency_type", "INVALID"),
        ("callback_url", "INVALID"),
        ("limit_key", "INVALID_TEXT"),
        ("ref", "INVALID"),
    ] == [(fault.field, fault.code) for fault in error.faults]
    assert "; ".join(str(fault) for fault in error.faults) == str(error)
    assert all(fault.message for fault in error.faults)


@pytest.mark.req("A-3")
def test_other_values_than_objects_are_not_submissions() -> None:
    with pytest.raises(ValidationError, match="job must be an object, got a list"):
        read([1])


@pytest.mark.req("A-3")
@pytest.mark.parametrize(
    ("fields", "faults_"),
    [
        ({}, [Fault("type", "REQUIRED", "is required")]),
        ({"type": None}, [Fault("type", "INVALID", "must be a string, got None")]),
        ({"type": ["a"]}, [Fault("type", "INVALID", "must be a string, got a list")]),
        (
            {"type": "t", 5: 1, "\x00": 2, "faults": ()},
            [
                Fault("5", "UNKNOWN_FIELD", "is not a field of a submission"),
                Fault("\ufffd", "UNKNOWN_FIELD", "is not a field of a submission"),
                Fault("faults", "UNKNOWN_FIELD", "is not a field of a submission"),
            ],
        ),
    ],
)
def test_reading_fields_collects_faults_of_names(
    fields: dict[object, object], faults_: list[Fault]
) -> None:
    submission = read(fields)

    assert faults_ == list(submission.faults)
    assert isinstance(submission.type, str)
    with pytest.raises(ValidationError) as caught:
        accept(submission, job_id=ID, now=NOW)
    assert faults_ == list(caught.value.faults)


def test_reading_valid_fields_collects_no_faults() -> None:
    assert Submission(type="t", payload=1) == read({"type": "t", "payload": 1})


@pytest.mark.parametrize("name", ["a", "A_1", "mail.send", "a/b-c", "9", "x" * 128])
def test_names_of_types_are_words_joined_by_dots_slashes_and_dashes(name: str) -> None:
    assert name == job(type=name).type


@pytest.mark.parametrize("name", ["", ".a", "/a", "-a", "a b", "ä", "a:b", "x" * 129, "a\n"])
def test_other_names_of_types_are_refused(name: str) -> None:
    assert [("type", "INVALID")] == faults(type=name)


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "x" * 129, 5, False])
def test_a_queue_is_named_like_a_type_without_slashes(name: object) -> None:
    assert "q.1-a_b" == job(queue="q.1-a_b").queue
    assert [("queue", "INVALID")] == faults(queue=name)


@pytest.mark.req("M-13")
def test_the_queue_comes_from_the_submission_or_the_handler() -> None:
    mail = Defaults(queue="mail")

    assert ("mail", "bulk") == (
        job(defaults=mail).queue,
        job(defaults=mail, queue="bulk").queue,
    )


@pytest.mark.req("M-4")
def test_a_priority_is_a_name_or_a_number() -> None:
    for level in Priority:
        assert level.value == job(priority=level.name).priority == job(priority=level).priority
        assert level.value == job(priority=level.value).priority


@pytest.mark.req("M-4")
@pytest.mark.parametrize("value", [-1, 5, "high", "2", True, 1.0, None.__class__])
def test_there_are_no_other_priorities(value: object) -> None:
    assert [("priority", "INVALID")] == faults(priority=value)
    assert _reported(priority=value).startswith(
        "priority must be one of CRITICAL (0), HIGH (1), NORMAL (2), LOW (3), BULK (4), got"
    )


@pytest.mark.req("M-6")
@pytest.mark.parametrize(
    ("given", "handler", "system", "effective"),
    [
        (None, None, 30, 30),
        (None, 10, 30, 10),
        (20, 10, 30, 10),
        (10, 20, 30, 10),
        (30, None, 30, 30),
        (None, 40, 30, 30),
        (None, None, 60, 30),
        (None, 50, 60, 50),
    ],
)
def test_the_shortest_of_job_handler_and_system_timeout_applies(
    given: int | None, handler: int | None, system: int, effective: int
) -> None:
    defaults = Defaults(
        timeout=None if handler is None else handler * MINUTE,
        limits=Limits(timeout=system * MINUTE),
    )
    given = {} if given is None else {"timeout": given * MINUTE}

    assert effective * MINUTE == job(defaults=defaults, **given).timeout


@pytest.mark.req("M-6")
def test_a_handler_may_allow_itself_more_than_its_profile() -> None:
    assert 5 * MINUTE == job(defaults=Defaults(profile=LEASE)).timeout
    assert 10 * MINUTE == job(defaults=Defaults(profile=LEASE, timeout=10 * MINUTE)).timeout
    assert 20 * MINUTE == job(defaults=Defaults(profile=LEASE), timeout=20 * MINUTE).timeout


@pytest.mark.req("M-6")
def test_a_timeout_above_the_limit_of_the_system_is_refused() -> None:
    assert 30 * MINUTE == job(timeout=1800).timeout
    assert "timeout must not exceed the system's 1800 s (Limits.timeout), got 1801 s" == _reported(
        timeout=1801
    )


@pytest.mark.req("M-6")
@pytest.mark.parametrize("field", ["timeout", "lifetime", "idempotency_window"])
@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0, "OUT_OF_RANGE"),
        ("PT0S", "OUT_OF_RANGE"),
        (-1, "INVALID_DURATION"),
        ("soon", "INVALID_DURATION"),
        (True, "INVALID_DURATION"),
        (timedelta.max, "INVALID_DURATION"),
    ],
)
def test_spans_must_be_longer_than_zero(field: str, value: object, code: str) -> None:
    assert [(field, code)] == faults(**{field: value})


@pytest.mark.req("M-6")
def test_a_lease_lasts_at_least_a_tenth_of_a_second() -> None:
    assert 0.1 * SECOND == job(lease=0.1).lease_ttl
    assert "lease must be at least 0.1 s, got 0.099 s" == _reported(lease=0.099)
    assert [("lease", "INVALID_DURATION")] == faults(lease="x")
    assert 300 * SECOND == job(defaults=Defaults(lease=300 * SECOND)).lease_ttl


@pytest.mark.req("M-6")
def test_a_delay_may_be_as_long_as_the_lifetime_but_not_longer() -> None:
    whole = job(delay=60, lifetime=60)

    assert (State.DELAYED, whole.expires_at) == (whole.state, whole.due_at)
    assert (
        "delay must fall within the job's lifetime of 60 s, got 2026-01-15T10:31:00.000001Z"
        == _reported(delay=60.000001, lifetime=60)
    )
    assert [("scheduled_at", "BEYOND_LIFETIME")] == faults(scheduled_at="9999-12-31T00:00:00Z")
    assert [("delay", "BEYOND_LIFETIME")] == faults(
        delay=61, defaults=Defaults(lifetime=60 * SECOND)
    )


@pytest.mark.req("A-9")
def test_a_job_can_be_scheduled_for_an_instant_in_any_zone() -> None:
    assert LATER == job(scheduled_at="2026-01-15T11:31:00+01:00").due_at
    assert LATER == job(scheduled_at=LATER).due_at
    past = job(scheduled_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert State.SCHEDULED == past.state


@pytest.mark.parametrize("value", ["2026-01-15T10:31:00", "noon", 5])
def test_an_instant_needs_a_time_zone(value: object) -> None:
    assert [("scheduled_at", "INVALID_TIMESTAMP")] == faults(scheduled_at=value)


@pytest.mark.parametrize("delay", [0, 60])
def test_delay_and_instant_exclude_each_other(delay: int) -> None:
    assert [("scheduled_at", "CONFLICT")] == faults(delay=delay, scheduled_at=LATER)


def test_no_delay_is_no_delay() -> None:
    assert (State.SCHEDULED, None) == (job(delay=0).state, job(delay=0).due_at)


@pytest.mark.req("L-2")
def test_a_held_job_stays_pending() -> None:
    held = job(hold=True, delay=60)

    assert (State.PENDING, True, LATER) == (held.state, held.held, held.due_at)
    assert (State.SCHEDULED, State.SCHEDULED) == (job(hold=False).state, job(hold=None).state)


@pytest.mark.req("M-7")
@pytest.mark.parametrize("value", [1, 100])
def test_attempts_lie_between_1_and_100(value: int) -> None:
    assert value == job(max_attempts=value).max_attempts


@pytest.mark.req("M-7")
@pytest.mark.parametrize("value", [0, -1, 101, True, "3", 3.0])
def test_other_numbers_of_attempts_are_refused(value: object) -> None:
    assert [("max_attempts", "OUT_OF_RANGE")] == faults(max_attempts=value)
    assert _reported(max_attempts=value).startswith("max_attempts must be between 1 and 100, got ")


@pytest.mark.req("M-7")
def test_retries_come_from_the_submission_the_handler_or_the_profile() -> None:
    handler = Defaults(
        profile=LEASE,
        max_attempts=9,
        backoff=Backoff(max_delay=MINUTE),
        retry_timeouts=False,
        retry_crashes=False,
    )

    assert (4, LEASE.backoff) == (
        job(defaults=Defaults(profile=LEASE)).max_attempts,
        job(defaults=Defaults(profile=LEASE)).backoff,
    )
    mine = job(defaults=handler)
    assert (9, Backoff(max_delay=MINUTE), False, False) == (
        mine.max_attempts,
        mine.backoff,
        mine.retry_timeouts,
        mine.retry_crashes,
    )
    overridden = job(
        defaults=handler,
        max_attempts=2,
        backoff=Backoff(),
        retry_timeouts=True,
        retry_crashes=True,
    )
    assert (2, Backoff(), True, True) == (
        overridden.max_attempts,
        overridden.backoff,
        overridden.retry_timeouts,
        overridden.retry_crashes,
    )


@pytest.mark.req("M-7")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, [("backoff", "INVALID")]),
        ([], [("backoff", "INVALID")]),
        ({"strategy": "SOMETIMES"}, [("backoff.strategy", "INVALID")]),
        ({"strategy": ["LINEAR"]}, [("backoff.strategy", "INVALID")]),
        ({"multiplier": "2"}, [("backoff", "INVALID")]),
        ({"multiplier": 10**400}, [("backoff", "INVALID")]),
        ({"jitter": 1}, [("backoff", "INVALID")]),
        (
            {"initial_delay": -1, "max_delay": None, "speed": 3},
            [
                ("backoff.initial_delay", "INVALID_DURATION"),
                ("backoff.max_delay", "INVALID_DURATION"),
                ("backoff.speed", "UNKNOWN_FIELD"),
            ],
        ),
        ({5: 1}, [("backoff.5", "UNKNOWN_FIELD")]),
        ({"initial_delay": 60, "max_delay": 1}, [("backoff.max_delay", "OUT_OF_RANGE")]),
        ({"multiplier": 1001}, [("backoff.multiplier", "OUT_OF_RANGE")]),
        (Backoff(multiplier=0.1), [("backoff.multiplier", "OUT_OF_RANGE")]),
        (Backoff(multiplier="x"), [("backoff", "INVALID")]),
        (Backoff(initial_delay=1.5), None),
        (Backoff(strategy="LINEAR", jitter=True), None),
        ({"multiplier": 3, "strategy": "CUSTOM", "jitter": True}, None),
        ({}, None),
    ],
)
def test_a_backoff_is_read_from_an_object_and_checked(
    value: object, expected: list[tuple[str, str]] | None
) -> None:
    if expected is None:
        backoff = job(backoff=value).backoff
        assert isinstance(backoff.strategy, BackoffKind)
        assert isinstance(backoff.initial_delay, timedelta)
    else:
        assert expected == faults(backoff=value)


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match=r"one of CONSTANT, LINEAR, .*, got 'SOMETIMES'"):
        job(backoff={"strategy": "SOMETIMES"})


@pytest.mark.req("M-2")
@pytest.mark.parametrize("field", ["idempotency_key", "correlation_id", "limit_key", "ref"])
def test_short_texts_have_up_to_256_characters(field: str) -> None:
    job(**{field: "x" * 256})

    assert f"{field} must be at most 256 characters, got 257" == _reported(**{field: "x" * 257})
    assert [(field, "INVALID")] == faults(**{field: ""})
    assert [(field, "INVALID")] == faults(**{field: b"x"})
    assert [(field, "INVALID_TEXT")] == faults(**{field: "a\x00"})
    assert [(field, "INVALID_TEXT")] == faults(**{field: "\udc00"})


@pytest.mark.req("M-2")
def test_a_key_belongs_to_its_type_for_its_window_and_has_a_digest_of_its_payload() -> None:
    first = job(idempotency_key="k", payload={"a": 1}).dedupe
    same = job(idempotency_key="k", payload={"a": 1}).dedupe
    other = job(idempotency_key="k", payload={"a": 2}).dedupe

    assert first == same
    assert ("mail.send", "k", NOW + DAY) == (first.scope, first.key, first.expires_at)
    assert first.digest != other.digest
    assert 32 == len(first.digest)


@pytest.mark.req("M-2", "M-12")
@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"a": 1, "b": {"c": [1.5], "d": 2}}, {"b": {"d": 2, "c": [1.5]}, "a": 1}),
        (Raw(b' {"b" : 1.50,\n"a":[ ] }'), Raw(b'{"a":[],"b":1.50}')),
        ({"b": "\u00e9", "a": 2**70}, Raw(b'{"a":1180591620717411303424,"b":"\\u00e9"}')),
        (None, Raw(b" null")),
    ],
)
def test_json_with_other_white_space_or_order_of_keys_is_the_same(one: object, two: object) -> None:
    first, second = job(idempotency_key="k", payload=one), job(idempotency_key="k", payload=two)

    assert first.dedupe == second.dedupe
    assert (bytes(two) if isinstance(two, Raw) else second.payload) == second.payload


@pytest.mark.req("M-2")
@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        (Raw(b"0.1"), Raw(b"0.10000000000000000001")),
        (2**70, 2**70 + 1),
        (1, b"1"),
        ("a b", "ab"),
        ({"a": None}, {}),
    ],
)
def test_payloads_with_another_value_differ(one: object, two: object) -> None:
    first, second = job(idempotency_key="k", payload=one), job(idempotency_key="k", payload=two)

    assert first.dedupe.digest != second.dedupe.digest


@pytest.mark.req("M-2")
def test_the_window_can_be_set_per_system_and_per_job() -> None:
    system = Defaults(limits=Limits(idempotency_window=2 * DAY))

    assert NOW + 2 * DAY == job(defaults=system, idempotency_key="k").dedupe.expires_at
    assert NOW + MINUTE == job(idempotency_key="k", idempotency_window=60).dedupe.expires_at
    assert job(idempotency_window=60).dedupe is None


@pytest.mark.req("M-13")
def test_tags_are_few_short_clean_strings() -> None:
    most = {f"k{n}": "" for n in range(64)}

    assert most == job(tags=most).tags
    assert {"k" * 128: "v" * 1024} == job(tags={"k" * 128: "v" * 1024}).tags
    assert {} == job(tags={}).tags == job().tags
    assert [("tags", "INVALID")] == faults(tags={**most, "one more": ""})


@pytest.mark.parametrize(
    ("tags", "fault"),
    [
        ({"": "x"}, ("tags.", "INVALID")),
        ({"k" * 129: "x"}, ("tags." + "k" * 59 + "…", "INVALID")),
        ({5: "x"}, ("tags.5", "INVALID")),
        ({(1,): "x"}, ("tags.a tuple", "INVALID")),
        ({"a": "v" * 1025}, ("tags.a", "INVALID")),
        ({"a": 1}, ("tags.a", "INVALID")),
        ({"a": None}, ("tags.a", "INVALID")),
        ({"a\x00": "x"}, ("tags.a\ufffd", "INVALID_TEXT")),
        ({"a": "\ud800"}, ("tags.a", "INVALID_TEXT")),
    ],
)
def test_other_tags_are_refused_by_name(tags: object, fault: tuple[str, str]) -> None:
    assert [fault] == faults(tags=tags)


@pytest.mark.req("A-19")
@pytest.mark.parametrize(
    "url", ["http://localhost", "https://example.com:8443/a?b=c#d", "http://[::1]/x"]
)
def test_a_callback_goes_to_a_web_address(url: str) -> None:
    assert url == job(callback_url=url).callback_url


@pytest.mark.parametrize(
    "url",
    [
        "example.com",
        "ftp://example.com",
        "javascript:alert(1)",
        "http://",
        "http:///path",
        "http://user:secret@example.com",
        "http://:secret@example.com",
        "http://[::1",
        "http://example.com:99999",
        "http://example.com:0",
        "http://example.com/a b",
        "http://example.com/\r\nX-Evil: 1",
    ],
)
def test_other_callback_addresses_are_refused(url: str) -> None:
    assert [("callback_url", "INVALID")] == faults(callback_url=url)


def test_an_address_has_up_to_2048_characters() -> None:
    base = "http://example.com/"
    longest = base + "x" * (2048 - len(base))

    assert longest == job(callback_url=longest).callback_url
    assert [("callback_url", "TOO_LONG")] == faults(callback_url=longest + "x")


@pytest.mark.req("M-12")
def test_a_payload_may_be_as_large_as_the_limit() -> None:
    limits = Defaults(limits=Limits(payload_bytes=100))

    assert 100 == len(job(defaults=limits, payload=b"x" * 100).payload)
    assert 100 == len(job(defaults=limits, payload="x" * 98).payload)
    assert [("payload", "TOO_LARGE")] == faults(defaults=limits, payload=b"x" * 101)
    assert [("payload", "TOO_LARGE")] == faults(defaults=limits, payload="x" * 99)
    assert [("payload", "TOO_LARGE")] == faults(payload=b"x" * (MEBIBYTE + 1))


@pytest.mark.req("A-1")
def test_a_payload_that_does_not_fit_the_handler_is_refused() -> None:
    def misfit(payload: bytes, encoding: Encoding) -> str:
        return "" if payload == b"1" else f"got {encoding}"

    picky = Defaults(misfit=misfit)

    assert b"1" == job(defaults=picky, payload=1).payload
    assert b"1" == job(defaults=picky, payload=1, delay=5).payload
    assert [("payload", "INVALID")] == faults(defaults=picky)
    assert [("payload", "INVALID")] == faults(defaults=picky, payload=2, delay=5)
    assert [("payload", "NOT_FINITE")] == faults(defaults=picky, payload=[float("nan")])
    refused = refusal(defaults=picky, payload=b"2", queue="a b")
    assert "payload must fit the task: got bytes" in str(refused)
    assert "queue must match" in str(refused)


@pytest.mark.req("M-12")
def test_bytes_are_marked_as_such() -> None:
    binary = job(payload=b"\x00\x01")

    assert (b"\x00\x01", Encoding.BYTES) == (binary.payload, binary.encoding)


@pytest.mark.req("M-9")
def test_a_job_waits_for_the_jobs_it_names_each_once() -> None:
    parents = {"a": Parent(2, 0), "b": Parent(1, 41)}

    waiting = job(parents=parents, depends_on=["a", "b", "a"])

    assert (State.PENDING, ("a", "b"), 42) == (
        waiting.state,
        waiting.depends_on,
        waiting.depth,
    )
    assert DependencyKind.AFTER is waiting.dependency_kind


@pytest.mark.req("M-5")
def test_a_dependent_inherits_the_most_urgent_priority() -> None:
    parents = {"a": Parent(3, 0), "b": Parent(1, 0)}

    assert 1 == job(parents=parents, depends_on=["a", "b"], priority="BULK").priority
    assert 0 == job(parents=parents, depends_on=["a", "b"], priority=0).priority
    assert 2 == job(parents=parents, depends_on=["a"]).priority
    assert 0 == job(parents=parents, depends_on=["a"], defaults=Defaults(profile=BULLMQ)).priority
    assert 3 == job(defaults=Defaults(priority=Priority.LOW)).priority


@pytest.mark.req("M-9")
@pytest.mark.parametrize(("count", "fine"), [(1000, True), (1001, False)])
def test_a_job_waits_for_at_most_1000_others(count: int, fine: bool) -> None:
    parents = {str(n): Parent(2, 0) for n in range(count)}

    if fine:
        assert count == len(job(parents=parents, depends_on=list(parents)).depends_on)
    else:
        with pytest.raises(ValidationError, match="must name at most 1000 jobs, got 1001"):
            job(parents=parents, depends_on=list(parents))


@pytest.mark.req("M-9")
@pytest.mark.parametrize(("depth", "fine"), [(99, True), (100, False)])
def test_a_job_is_at_most_100_levels_deep(depth: int, fine: bool) -> None:
    parents = {"a": Parent(2, depth)}

    if fine:
        assert 100 == job(parents=parents, depends_on=("a",)).depth
    else:
        with pytest.raises(ValidationError, match="must be at most 100 levels deep, got 101"):
            job(parents=parents, depends_on=("a",))


@pytest.mark.req("M-9")
def test_jobs_to_wait_for_must_exist() -> None:
    assert "depends_on must exist, got unknown 'x', 'y'" == _reported(depends_on=["x", "y"])


@pytest.mark.parametrize("value", ["abc", b"abc", 5, {"a": 1}, [5], [None], object()])
def test_dependencies_are_a_list_of_ids(value: object) -> None:
    assert [("depends_on", "INVALID")] == faults(depends_on=value)


@pytest.mark.parametrize("value", [(), [], None])
def test_no_dependencies_are_none(value: object) -> None:
    plain = job(depends_on=value)

    assert ((), State.SCHEDULED, 0) == (plain.depends_on, plain.state, plain.depth)


@pytest.mark.req("M-9")
@pytest.mark.parametrize("kind", ["AFTER", "AFTER_ANY", "AFTER_ALL", "CHAIN", "FAN_IN"])
def test_the_kind_of_waiting_can_be_chosen(kind: str) -> None:
    waiting = job(parents={"a": Parent(2, 0)}, depends_on=["a"], dependency_type=kind)

    assert DependencyKind(kind) is waiting.dependency_kind


@pytest.mark.parametrize("value", ["FAN_OUT", "after", 5, [], {}])
def test_other_kinds_are_refused(value: object) -> None:
    assert _reported(dependency_type=value).startswith(
        "dependency_type must be one of AFTER, AFTER_ANY, AFTER_ALL, CHAIN, FAN_IN, got "
    )


@pytest.mark.req("M-9")
def test_a_spawned_job_is_spawned_once_per_key_and_waits_for_nothing() -> None:
    spawned = job(spawner=Spawner("parent", "0"))

    assert ("parent", DependencyKind.FAN_OUT, State.SCHEDULED) == (
        spawned.spawned_by,
        spawned.dependency_kind,
        spawned.state,
    )
    assert spawned.dedupe is None  # its id is its key


@pytest.mark.req("M-2", "M-9")
def test_a_spawned_job_holds_its_idempotency_key() -> None:
    spawned = job(spawner=Spawner("parent", "0"), idempotency_key="mine")

    assert "mine" == spawned.idempotency_key


@pytest.mark.req("M-1", "M-9")
def test_the_id_of_a_spawned_job_follows_from_its_spawner_and_key() -> None:
    ids = [Spawner(*by).child_id for by in [("p", "k"), ("p", "k"), ("p", "l"), ("q", "k")]]

    assert ids[0] == ids[1]
    assert 3 == len(set(ids))
    assert {4} == {UUID(id_).version for id_ in ids}


@pytest.mark.req("M-9")
def test_a_spawned_job_with_dependencies_waits_for_them() -> None:
    spawned = job(
        spawner=Spawner("parent", "0"),
        parents={"a": Parent(0, 4)},
        depends_on=["a"],
        dependency_type="AFTER_ANY",
    )

    assert (State.PENDING, DependencyKind.AFTER_ANY, 5, 0) == (
        spawned.state,
        spawned.dependency_kind,
        spawned.depth,
        spawned.priority,
    )


@pytest.mark.parametrize(
    ("value", "names"),
    [(["a", 1, "b"], ("a", "b")), ("ab", ()), (None, ()), (5, ()), (("a",), ("a",)), ({"a"}, ())],
)
def test_job_names_are_read_from_anything(value: object, names: tuple[str, ...]) -> None:
    assert names == named_jobs(value)


def test_defaults_hold_everything_that_a_task_declares() -> None:
    declared = Declaration(
        queue="money",
        priority=Priority.HIGH,
        timeout=SECOND,
        lifetime=MINUTE,
        lease=2 * SECOND,
        max_attempts=1,
        backoff=Backoff(strategy=BackoffKind.LINEAR),
        retry_timeouts=False,
        retry_crashes=False,
    )

    defaults = defaults_for(declared, "money", profile=LEASE, limits=Limits(batch=5))

    assert (LEASE, Limits(batch=5)) == (defaults.profile, defaults.limits)
    for name in Declaration.__struct_fields__:
        assert getattr(declared, name) == getattr(defaults, name)


def test_size_of_raw_json_is_judged_before_it_is_read() -> None:
    limits = Limits(payload_bytes=10)
    invalid = Submission(type="a", payload=Raw(b"[" * 11))

    with pytest.raises(ValidationError) as refused:
        accept(invalid, job_id="j", now=NOW, defaults=Defaults(limits=limits))

    assert [("payload", "TOO_LARGE")] == [(f.field, f.code) for f in refused.value.faults]


def test_only_raw_json_has_a_size_before_it_is_read() -> None:
    assert (3, 0) == (raw_size(Raw(b"[1]")), raw_size([1]))
