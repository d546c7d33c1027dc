"""Commands about jobs, with output for people and for programs."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Place


def test_submitted_job_is_shown_with_all_its_options(place: Place) -> None:
    job_id = place.submit(
        "greet",
        '{"name": "Ada"}',
        *("--queue", "mail", "--priority", "high", "--delay", "PT1H", "--timeout", "9.5"),
        *("--lifetime", "PT2H", "--lease", "8", "--max-attempts", "4", "--tag", "team=a"),
        *("--correlation-id", "c", "--idempotency-key", "k", "--idempotency-window", "60"),
        *("--backoff", '{"strategy": "LINEAR"}', "--no-retry-timeouts", "--limit-key", "l"),
        *("--callback-url", "https://example.org/x", "--no-retry-crashes"),
    )

    job = place.json("job", job_id)
    assert ("greet", "mail", "DELAYED", "HIGH", 4) == (
        job["type"],
        job["queue"],
        job["state"],
        job["priority"],
        job["max_attempts"],
    )
    assert ({"team": "a"}, "c") == (job["tags"], job["correlation_id"])
    assert ("https://example.org/x", None) == (job["callback_url"], job["scheduled_at"])
    (stored,) = place.stored(job_id)
    assert (False, False) == (stored.retry_timeouts, stored.retry_crashes)
    shown = place.run("job", job_id).stdout
    assert "priority     HIGH" in shown
    assert "tags         team=a" in shown
    assert "callback     https://example.org/x" in shown


def test_payload_can_come_from_standard_input(place: Place) -> None:
    result = place.run("submit", "greet", "-", "--json", stdin='{"name": "Ada"}\n')

    assert "ACCEPTED" == json.loads(result.stdout)["status"]


def test_payload_can_be_bytes(place: Place) -> None:
    job_id = json.loads(place.run("submit", "x", "-", "--bytes", "--json", stdin=b"\xff").stdout)

    (job,) = place.stored(job_id["job_id"])
    assert b"\xff" == job.payload


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--tag", "team"], "--tag must be NAME=VALUE, got 'team'"),
        (["--backoff", "{"], "--backoff must be JSON"),
        (["--backoff", '{"speed": 1}'], "backoff"),
        (["--priority", "urgent"], "'urgent' is not one of"),
        (["--depends-on", "unknown"], "depends_on: must exist"),
    ],
)
def test_errors_name_the_wrong_option(place: Place, args: list[str], message: str) -> None:
    result = place.run("submit", "greet", *args)

    assert 2 == result.exit_code
    assert message in result.stderr


def test_repeated_key_is_a_duplicate_and_another_payload_is_refused(place: Place) -> None:
    first = place.submit("greet", '{"n": 1}', "--idempotency-key", "k")

    again = place.json("submit", "greet", '{ "n":1 }', "--idempotency-key", "k")
    other = place.run("submit", "greet", '{"n": 2}', "--idempotency-key", "k")

    assert ("DUPLICATE", first) == (again["status"], again["existing_job_id"])
    assert 1 == other.exit_code
    assert f"was used with another payload by job {first}" in other.stderr


def test_key_of_a_deleted_job_is_a_duplicate_of_a_deleted_job(place: Place) -> None:
    first = place.submit("greet", '{"n": 1}', "--idempotency-key", "k")
    place.run("cancel", first)
    assert 0 == place.run("delete", first).exit_code

    again = place.json("submit", "greet", '{"n": 1}', "--idempotency-key", "k")
    shown = place.run("submit", "greet", '{"n": 1}', "--idempotency-key", "k")
    other = place.run("submit", "greet", '{"n": 2}', "--idempotency-key", "k")

    assert (first, True) == (again["existing_job_id"], again["existing_job_deleted"])
    assert "deleted" in shown.stdout
    assert f"by job {first}, which was deleted" in other.stderr


def test_faults_are_listed_per_field(place: Place) -> None:
    result = place.run("submit", "no type", "{]", "--max-attempts", "0")

    assert 2 == result.exit_code
    lines = result.stderr.splitlines()
    assert "holdfast: not valid:" == lines[0]
    assert {"type", "payload", "max_attempts"} == {
        line.strip().partition(":")[0] for line in lines[1:]
    }


@pytest.mark.parametrize(
    "args",
    [
        ("submit", "greet", "--delay", "banana"),
        ("retry", "x", "--delay", "banana"),
        ("queues", "pause", "mail", "--for", "banana"),
        ("queues", "ageing", "mail", "banana"),
        ("keys", "create", "x", "--role", "admin", "--expires-in", "banana"),
        ("limits", "set", "queue:a", "--rate", "1", "--per", "banana"),
        ("stats", "--time-range", "banana"),
    ],
    ids=" ".join,
)
def test_span_that_is_none_is_refused_with_the_forms(place: Place, args: tuple[str, ...]) -> None:
    result = place.run(*args)

    assert 2 == result.exit_code
    assert "must be a duration: seconds, 30s, 5m, 1h, or ISO 8601" in result.stderr


def test_jobs_are_listed_filtered_and_paged(place: Place) -> None:
    ids = [place.submit("greet", "--tag", f"n={n}") for n in range(3)]
    place.submit("other", "--queue", "side", "--priority", "bulk")

    everything = place.json("jobs", "--order", "created_asc")
    tagged = place.json("jobs", "--tag", "n=1")
    side = place.json("jobs", "--queue", "side", "--priority", "BULK", "--state", "SCHEDULED")
    page = place.json("jobs", "--type", "greet", "--limit", "2")
    rest = place.json("jobs", "--type", "greet", "--limit", "2", "--cursor", page["next_cursor"])
    shown = place.run("jobs", "--type", "greet", "--limit", "2")

    assert [*ids, side["jobs"][0]["job_id"]] == [job["job_id"] for job in everything["jobs"]]
    assert [ids[1]] == [job["job_id"] for job in tagged["jobs"]]
    assert (3, True, False) == (page["total_count"], page["has_more"], rest["has_more"])
    assert ids[:1] == [job["job_id"] for job in rest["jobs"]]
    head, first, second, total, more = shown.stdout.splitlines()
    assert ["ID", "TYPE", "QUEUE", "STATE", "PRIORITY", "ATTEMPT", "CREATED"] == head.split()
    assert ids[2] in first
    assert ids[1] in second
    assert ("3 in all", f"more with --cursor {page['next_cursor']}") == (total, more)


@pytest.mark.slow
def test_job_shows_its_result_history_logs_and_failures(place: Place) -> None:
    good = place.submit("greet", '{"name": "Ada"}')
    bad = place.submit("fail")
    place.work()

    done = place.json("job", good, "--history", "--logs", "--failure")
    shown = place.run("job", good, "--history", "--logs").stdout
    failed = place.run("job", bad, "--failure").stdout
    failures = place.json("failures")
    listed = place.run("failures").stdout

    assert "hello Ada" == done["result"]["output"]
    assert ["PENDING", "SCHEDULED", "RUNNING", "COMPLETED"] == [
        edge["to_state"] for edge in done["history"]
    ]
    assert [("INFO", "greeting")] == [(line["level"], line["message"]) for line in done["logs"]]
    assert ["SUCCESS"] == [one["result"] for one in done["attempts"]]
    assert 'output    "hello Ada"' in shown
    assert "greeting name=Ada" in shown
    assert "attempt 1: FAILURE" in failed
    assert "PERMANENT NEVER: it cannot be" in failed
    assert "raise PermanentError" in failed
    assert ({"NEVER": 1}, 1) == (failures["by_code"], failures["total_count"])
    assert "by code: NEVER=1" in listed


def test_explanation_is_one_sentence(place: Place) -> None:
    job_id = place.submit("greet")

    document = place.json("explain", job_id)
    shown = place.run("explain", job_id).stdout

    assert ("NO_WORKER", "SCHEDULED") == (document["cause"], document["state"])
    assert f"{job_id} is SCHEDULED (ready to run): no worker is running\n" == shown


def test_one_job_is_cancelled_once(place: Place) -> None:
    job_id = place.submit("greet")

    first = place.run("cancel", job_id, "--reason", "no need")
    second = place.run("cancel", job_id)
    unknown = place.run("cancel", "unknown")

    assert (0, f"{job_id}  CANCELLED: no need\n") == (first.exit_code, first.stdout)
    assert (1, f"{job_id}  ALREADY_COMPLETE: already CANCELLED\n") == (
        second.exit_code,
        second.stdout,
    )
    assert (1, "unknown  NOT_FOUND\n") == (unknown.exit_code, unknown.stdout)


def test_jobs_are_cancelled_by_filter_after_a_dry_run(place: Place) -> None:
    for _ in range(3):
        place.submit("greet")
    kept = place.submit("other")

    dry_run = place.run("cancel", "--type", "greet", "--dry-run")
    done = place.json("cancel", "--type", "greet")

    assert "3 of 3 would be cancelled, 0 skipped, 0 not found\n" == dry_run.stdout
    assert (3, 3) == (done["requested"], done["cancelled"])
    assert "SCHEDULED" == place.json("job", kept)["state"]


def test_cancel_needs_ids_or_filters(place: Place) -> None:
    given = {"to say which jobs": [], "not both": ["some-id", "--type", "greet"]}
    for what, args in given.items():
        result = place.run("cancel", *args)

        assert 2 == result.exit_code
        assert f"give job ids, or filters such as --type, {what}\n" in result.stderr


@pytest.mark.slow
def test_failed_job_is_retried_and_others_are_not(place: Place) -> None:
    failed, waiting = place.submit("fail"), place.submit("other", "--queue", "unserved")
    place.work()

    retried = place.json("retry", failed, "--priority", "critical", "--delay", "60")
    refused = place.run("retry", waiting, "unknown")

    assert ("QUEUED", "DELAYED") == (retried["status"], retried["new_state"])
    assert 1 == refused.exit_code
    assert "NOT_RETRIABLE" in refused.stdout
    assert "NOT_FOUND" in refused.stdout


def test_metadata_of_jobs_is_changed(place: Place) -> None:
    job_id = place.submit("greet", "--tag", "old=1")

    updated = place.json("update", job_id, "--tag", "a=1", "--tag", "b=2", "--priority", "high")
    job = place.json("job", job_id)
    cleared = place.json("update", job_id, "--no-tags", "--correlation-id", "c")
    waiting = place.submit("greet", "--delay", "3600")
    moved = place.json("update", waiting, "--delay", "7200")
    wrong = place.run("update", waiting, "--scheduled-at", "soon")
    place.run("cancel", job_id)
    late = place.run("update", job_id, "--priority", "LOW")
    nothing = place.run("update", job_id)
    both = place.run("update", job_id, "--tag", "a=1", "--no-tags")

    assert ("UPDATED", "SCHEDULED") == (updated["status"], updated["state"])
    assert ({"a": "1", "b": "2"}, "HIGH") == (job["tags"], job["priority"])
    assert "UPDATED" == cleared["status"]
    assert ({}, "c") == tuple(place.json("job", job_id)[n] for n in ("tags", "correlation_id"))
    assert (1, 2, 2) == (late.exit_code, nothing.exit_code, both.exit_code)
    assert "NOT_WAITING" in late.stdout
    assert ("UPDATED", "DELAYED") == (moved["status"], moved["state"])
    assert "scheduled_at" in wrong.output


def test_held_job_is_released_and_ended_job_deleted(place: Place) -> None:
    job_id = place.submit("greet", "--hold")

    released = place.json("release", job_id)
    again = place.run("release", job_id)
    early = place.run("delete", job_id)
    place.run("cancel", job_id)
    deleted = place.json("delete", job_id)

    assert ("RELEASED", "SCHEDULED") == (released["status"], released["new_state"])
    assert (1, 1) == (again.exit_code, early.exit_code)
    assert "NOT_ENDED" in early.stdout
    assert "DELETED" == deleted["status"]


def test_unknown_job_is_an_error_without_a_traceback(place: Place) -> None:
    for command in ("job", "explain"):
        result = place.run(command, "unknown")

        assert 1 == result.exit_code
        assert "holdfast: no job with id 'unknown'\n" == result.stderr


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("schedules", "show", "nope"), "schedule with name"),
        (("schedules", "run", "nope"), "schedule with name"),
        (("schedules", "pause", "nope"), "schedule with name"),
        (("schedules", "change", "nope", "--queue", "q"), "schedule with name"),
        (("schedules", "delete", "nope"), "schedule with name"),
        (("operations", "show", "nope"), "operation with id"),
        (("workers", "drain", "nope"), "worker with name"),
        (("keys", "revoke", "nope"), "API key with id"),
    ],
    ids=str,
)
def test_unknown_name_is_an_error_that_names_the_kind(
    place: Place, args: tuple[str, ...], what: str
) -> None:
    place.submit("greet")

    result = place.run(*args)

    assert 1 == result.exit_code
    assert f"holdfast: no {what} 'nope'\n" == result.stderr


def test_text_in_a_job_cannot_move_the_cursor(place: Place) -> None:
    place.submit("greet", "--tag", "x=\x1b[2Jgone", "--correlation-id", "a\u202eb")
    (job,) = place.json("jobs")["jobs"]

    shown = place.run("job", job["job_id"]).stdout

    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown
    assert r"\x1b[2Jgone" in shown


@pytest.mark.req("A-13", "A-16")
def test_jobs_are_retried_and_deleted_by_filter(place: Place) -> None:
    place.submit("greet")
    place.submit("greet")

    early = place.json("cancel", "--type", "greet", "--as-of", "2000-01-01T00:00:00Z")
    retried = place.run("retry", "--type", "greet", "--state", "SCHEDULED")
    place.run("cancel", "--type", "greet")
    counted = place.run("delete", "--type", "greet", "--dry-run")
    deleted = place.json("delete", "--type", "greet")
    neither = [place.run(name).exit_code for name in ("retry", "delete")]

    assert (2, 0, 2) == (early["requested"], early["cancelled"], early["skipped"])
    assert "0 of 2 retried, 2 skipped, 0 not found\n" == retried.stdout
    assert "2 of 2 would be deleted, 0 skipped, 0 not found\n" == counted.stdout
    assert (2, 2) == (deleted["requested"], deleted["deleted"])
    assert [2, 2] == neither


@pytest.mark.req("A-2")
def test_batch_is_submitted_from_an_array_or_lines(place: Place) -> None:
    jobs = [
        {"type": "a", "ref": "first", "payload": {"n": 1}},
        {"type": "b", "depends_on": ["first"], "tags": {"k": "v"}},
    ]
    lines = "\n".join(map(json.dumps, jobs))

    array = place.run("submit", "--batch", "-", "--json", stdin=json.dumps(jobs))
    each = place.run("submit", "--batch", "-", stdin=lines)

    first, second = json.loads(array.stdout)["results"]
    assert "2 accepted, 0 rejected" == each.stdout.splitlines()[0]
    assert [first["job_id"]] == place.json("job", second["job_id"])["depends_on"]
    assert 4 == place.json("jobs")["total_count"]


@pytest.mark.req("A-2", "A-3")
def test_batch_is_atomic_unless_each_job_stands_alone(place: Place) -> None:
    jobs = json.dumps([{"type": "a"}, {"type": "a", "max_attempts": 0}])

    atomic = place.run("submit", "--batch", "-", stdin=jobs)
    stored = place.json("jobs")["total_count"]
    single = place.run("submit", "--batch", "-", "--no-atomic", stdin=jobs)

    assert (2, 0) == (atomic.exit_code, stored)
    assert "max_attempts" in atomic.stderr
    assert 1 == single.exit_code
    assert "1 accepted, 1 rejected" == single.stdout.splitlines()[0]
    assert "max_attempts" in single.stdout


def test_batch_refuses_what_would_be_ignored(place: Place) -> None:
    for args in (("a",), ("--queue", "q"), ("--wait",), ("--hold",), ("--no-retry-crashes",)):
        result = place.run("submit", *args, "--batch", "-", stdin="[]")
        assert (2, True) == (result.exit_code, "the file holds them" in result.stderr)
    assert 2 == place.run("submit").exit_code
    assert 2 == place.run("submit", "--batch", "-", stdin="[1]").exit_code


def test_payload_of_a_job_is_shown_on_request(place: Place) -> None:
    text = place.submit("a", '{"n": 1}')
    data = place.submit("a", "xyz", "--bytes")

    assert {"n": 1} == place.json("job", text, "--payload")["payload"]
    assert "eHl6" == place.json("job", data, "--payload")["payload"]
    assert '{"n":1}' in place.run("job", text, "--payload").stdout
    assert "payload" not in place.json("job", text)


@pytest.mark.req("M-4")
def test_ageing_of_a_queue_is_turned_on_and_off(place: Place) -> None:
    place.submit("a")

    on = place.run("queues", "ageing", "default", "PT10M")
    aged = place.json("queues")[0]["ageing"]
    off = place.run("queues", "ageing", "default", "off")
    bad = place.run("queues", "ageing", "default", "0")

    assert "queue default ages every PT10M\n" == on.stdout
    assert "PT600S" == aged
    assert "queue default does not age\n" == off.stdout
    assert place.json("queues")[0]["ageing"] is None
    assert (2, True) == (bad.exit_code, "above zero" in bad.stderr)


def test_no_output_contains_terminal_controls(place: Place) -> None:
    job_id = place.submit("escape", "--tag", "team=\x9b\u202e")
    place.work()

    commands = (("job", job_id, "--failure"), ("job", job_id), ("failures",), ("jobs",))
    shown = [place.run(*args, *as_json) for args in commands for as_json in ((), ("--json",))]

    assert [0] * 8 == [one.exit_code for one in shown]
    text = "".join(one.stdout for one in shown)
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert "\\u202e" in text
    assert {"team": "\x9b\u202e"} == place.json("job", job_id)["tags"]
