"""Nothing a caller or a handler wrote can be read in a store without its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import (
    Holdfast,
    JobContext,
    Limits,
    State,
    SubmissionStatus,
    TemporaryError,
    ValidationError,
)
from holdfast.encryption import KeyRing
from holdfast.errors import DuplicateError
from holdfast.model.policy import MEBIBYTE
from tests.conformance.stores import Place, empty_schema
from tests.encryption.conftest import every_byte
from tests.worker.rig import ended, working

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "canary-7731"


def app_over(place: Place, keys: KeyRing | None) -> Holdfast:
    """An app whose handlers write the canary wherever a handler can write."""
    app = Holdfast(place.url, keys=keys)

    @app.task("bird.sing", max_attempts=2, backoff=None)
    async def sing(ctx: JobContext, word: str) -> dict[str, str]:
        await ctx.report_progress(50, f"singing {word}")
        await ctx.log("INFO", f"sang {word}", note=word)
        await ctx.checkpoint({"sung": word})
        if ctx.attempt == 1:
            raise TemporaryError(f"could not sing {word}", retry_after=0)
        return {"song": word, "restored": str(ctx.restore(dict))}

    @app.task("bird.die", max_attempts=1)
    async def die(payload: dict[str, str]) -> None:
        raise RuntimeError(f"no song for {payload}")

    @app.task("bird.echo")
    async def echo(ctx: JobContext) -> object:
        return list((await ctx.dependency_results()).values())

    return app


@pytest.mark.req("M-12")
async def test_everything_written_freely_is_unreadable_at_rest(
    shared_place: Place, ring: KeyRing
) -> None:
    app = app_over(shared_place, ring)
    async with working(app):
        song = await app.submit("bird.sing", {"word": CANARY}, idempotency_key="k")
        dead = await app.submit("bird.die", {"word": CANARY})
        assert State.COMPLETED is await ended(app, song.job_id)
        assert State.DEAD_LETTER is await ended(app, dead.job_id)
        status = await app.get(song.job_id, include_history=True)
        logs = await app.logs(song.job_id)
        failure = await app.failure(dead.job_id)
        events = [event async for event in app.events(follow=False)]
        kept = await every_byte(shared_place)

    assert CANARY.encode() not in kept
    assert song.job_id.encode() in kept or shared_place.file  # the file holds ids as 16 bytes
    assert {"song": CANARY, "restored": str({"sung": CANARY})} == status.output
    assert f"singing {CANARY}" == status.progress.message
    assert [f"could not sing {CANARY}"] == [e.reason for e in status.history if e.failure]
    assert {(f"sang {CANARY}", CANARY)} == {(line.message, line.fields["note"]) for line in logs}
    assert f"no song for {{'word': '{CANARY}'}}" == failure.failure.message
    assert "RuntimeError" in failure.attempts[0].failure.stack_trace
    reasons = [e.transition.reason for e in events if e.transition and e.transition.failure]
    assert f"could not sing {CANARY}" in reasons


@pytest.mark.req("M-2")
async def test_repeats_and_conflicts_are_distinguished_across_a_rotation(place: Place) -> None:
    old, new = KeyRing.generate("2026-01"), KeyRing.generate("2026-07")
    first = Holdfast(store=place.open(), keys=KeyRing.parse(old))
    async with first:
        accepted = await first.submit("t", {"n": 1}, idempotency_key="k")
    second = Holdfast(store=place.open(), keys=KeyRing.parse(f"{new},{old}"))

    async with second:
        again = await second.submit("t", {"n": 1}, idempotency_key="k")
        with pytest.raises(DuplicateError):
            await second.submit("t", {"n": 2}, idempotency_key="k")

    assert (SubmissionStatus.DUPLICATE, accepted.job_id) == (again.status, again.job_id)


@pytest.mark.req("M-11")
async def test_missing_key_fails_for_good_and_loses_nothing(place: Place) -> None:
    old, new = KeyRing.generate("2026-01"), KeyRing.generate("2026-07")
    first = Holdfast(store=place.open(), keys=KeyRing.parse(old))
    async with first:
        job = await first.submit("bird.die", "kept")
    whole = Holdfast(store=place.open(), keys=KeyRing.parse(f"{new},{old}"))
    async with whole:
        pass  # the new key is in use now
    app = Holdfast(store=place.open(), keys=KeyRing.parse(new))
    app.task("bird.die", max_attempts=3)(_unreached)
    async with working(app):
        assert State.FAILED is await ended(app, job.job_id)
        failure = (await app.get(job.job_id)).failure
        assert "PERMANENT" == failure.category
        assert "KEY_MISSING" == failure.code
        assert "payload is encrypted with key '2026-01'" in failure.message

    seen: list[object] = []

    @whole.task("bird.die")
    async def keep(payload: str) -> None:
        seen.append(payload)

    async with working(whole):
        await whole.retry(job.job_id)
        assert State.COMPLETED is await ended(whole, job.job_id)
    assert ["kept"] == seen


async def _unreached(payload: str) -> None:
    raise AssertionError(f"ran with {payload!r}")


@pytest.mark.req("M-9")
async def test_encrypted_results_reach_dependents(place: Place, ring: KeyRing) -> None:
    app = Holdfast(store=place.open(), keys=ring)

    @app.task("give")
    async def give() -> str:
        return CANARY

    @app.task("take")
    async def take(ctx: JobContext) -> object:
        return list((await ctx.dependency_results()).values())

    async with working(app):
        first = await app.submit("give")
        second = await app.submit("take", depends_on=[first.job_id])
        status = await app.wait(second.job_id, timeout=15)

    assert [CANARY] == status.output


async def test_payload_of_bytes_is_encrypted_too(shared_place: Place, ring: KeyRing) -> None:
    app = Holdfast(shared_place.url, keys=ring)
    seen: list[bytes] = []

    @app.task("raw")
    async def raw(payload: bytes) -> None:
        seen.append(payload)

    async with working(app):
        job = await app.submit("raw", b"\x00\xff" + CANARY.encode())
        kept = await every_byte(shared_place)
        assert State.COMPLETED is await ended(app, job.job_id)

    assert [b"\x00\xff" + CANARY.encode()] == seen
    assert CANARY.encode() not in kept


async def test_search_finds_encrypted_jobs_by_what_stays_readable(
    place: Place, ring: KeyRing
) -> None:
    app = Holdfast(store=place.open(), keys=ring)
    async with app:
        wanted = await app.submit("t", CANARY, tags={"customer": "7"}, correlation_id="c")
        await app.submit("t", CANARY, tags={"customer": "8"})
        found = await app.search(tags={"customer": "7"}, correlation_id="c")

    assert [wanted.job_id] == [job.job_id for job in found.jobs]


@pytest.mark.postgres
@pytest.mark.req("S-1")
async def test_encrypted_jobs_join_the_callers_transaction(
    postgres_server: object, ring: KeyRing, tmp_path: Path
) -> None:
    dsn = postgres_server.dsn  # type: ignore[attr-defined]
    empty_schema(dsn)
    app = Holdfast(f"{dsn}?schema=conformance", keys=ring)

    @app.task("bird.rest")
    async def rest(ctx: JobContext, word: str) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("SELECT 1")
            ctx.set_result({"word": word})

    async with working(app):
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            job = await app.submit("bird.rest", {"word": CANARY}, connection=connection)
        assert State.COMPLETED is await ended(app, job.job_id)
        kept = await every_byte(Place(app.url, dsn=dsn))
        assert {"word": CANARY} == (await app.get(job.job_id)).output

    assert job.job_id.encode() in kept
    assert CANARY.encode() not in kept


@pytest.mark.redis
@pytest.mark.req("M-12", stores=["redis"])
@pytest.mark.parametrize("shared_place", ["redis"], indirect=True)
async def test_limit_of_redis_counts_the_encrypted_payload(
    shared_place: Place, ring: KeyRing
) -> None:
    limits = Limits(payload_bytes=16 * MEBIBYTE)
    async with Holdfast(shared_place.url, keys=ring, limits=limits) as app:
        fits = await app.submit("t", "x" * (7 * MEBIBYTE))
        with pytest.raises(ValidationError, match=r"10\.7 MB exceeds limit of 10\.0 MB"):
            await app.submit("t", "x" * (8 * MEBIBYTE))

    assert SubmissionStatus.ACCEPTED is fits.status
