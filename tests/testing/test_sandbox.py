"""A sandbox runs an app in memory, under the control of the test."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import (
    Backoff,
    BackoffKind,
    Holdfast,
    JobContext,
    PermanentError,
    State,
    SyncJobContext,
    TemporaryError,
    ValidationError,
)
from holdfast.testing import Sandbox
from tests.waiting import forever

MINUTE = timedelta(minutes=1)
EVERY_MINUTE = Backoff(strategy=BackoffKind.CONSTANT, initial_delay=MINUTE)


class Shop:
    """An app as users write it, with a log of what its handlers did."""

    def __init__(self) -> None:
        self.app = app = Holdfast("sqlite:///never-created.db")
        self.actions: list[str] = []

        @app.task("mail.send", queue="mail")
        async def send_mail(to: str, subject: str = "hello") -> str:
            self.actions.append(f"mail to {to}")
            return f"sent to {to}"

        @app.task("order.take")
        async def take_order(number: int) -> None:
            await send_mail.submit(to=f"customer {number}")
            await send_mail.using(delay="P2D").submit(to=f"reminder {number}")

        @app.task("flaky", max_attempts=5, backoff=EVERY_MINUTE)
        async def flaky(ctx: JobContext, good_from: int) -> int:
            if ctx.attempt < good_from:
                raise TemporaryError("not yet")
            return ctx.attempt

        @app.task("hopeless")
        async def hopeless() -> None:
            raise PermanentError("never")

        @app.task("plain")
        def plain(ctx: SyncJobContext, items: int) -> str:
            for item in range(items):
                ctx.checkpoint({"done": item})
            send_mail.submit_sync(to="plain")
            return threading.current_thread().name

        self.send_mail, self.take_order, self.flaky = send_mail, take_order, flaky
        self.hopeless, self.plain = hopeless, plain


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_nothing_runs_until_the_test_drains(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        await shop.send_mail.submit(to="ada")

        assert [] == shop.actions
        assert [State.SCHEDULED] == [job.state for job in box.submitted()]


async def test_drain_runs_ready_jobs_and_the_jobs_they_submit(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        await shop.take_order.submit(7)

        done = await box.drain()

        assert ["order.take", "mail.send"] == [job.type for job in done]
        assert ["mail to customer 7"] == shop.actions
        assert "sent to customer 7" == box.assert_submitted(shop.send_mail, to="customer 7").result


async def test_moving_the_clock_runs_what_becomes_due(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        await shop.take_order.submit(7)
        await box.drain()
        start = box.clock.now()

        await box.advance(days=3)

        assert ["mail to customer 7", "mail to reminder 7"] == shop.actions
        assert start + timedelta(days=3) == box.clock.now()


async def test_a_later_job_runs_after_an_earlier_one_when_the_clock_passes_both(
    shop: Shop,
) -> None:
    with Sandbox(shop.app):
        await shop.send_mail.using(delay=20).submit(to="second")
        await shop.send_mail.using(delay=10).submit(to="first")
    # what was submitted in one sandbox is not in the next
    with Sandbox(shop.app) as box:
        await shop.send_mail.using(delay=20).submit(to="second")
        await shop.send_mail.using(delay=10).submit(to="first")

        await box.drain(until=box.clock.now() + MINUTE)

        assert ["mail to first", "mail to second"] == shop.actions


async def test_retries_run_when_they_are_due(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        job = await shop.flaky.submit(good_from=3)

        await box.drain()
        waiting = box.job(job)
        await box.drain(until=2 * MINUTE)

        assert (State.RETRYING, 1) == (waiting.state, waiting.attempt)
        assert waiting.failure is not None
        assert "not yet" == waiting.failure.message
        assert (State.COMPLETED, 3) == (box.job(job).state, box.job(job).result)


async def test_finish_moves_the_clock_only_as_far_as_needed(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        start = box.clock.now()
        job = await shop.flaky.submit(good_from=4)

        await box.finish()

        assert State.COMPLETED is box.job(job).state
        assert 3 * MINUTE == box.clock.now() - start


async def test_finish_lists_the_jobs_that_cannot_end(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        await shop.app.submit("unknown.type", {"a": 1})

        with pytest.raises(
            AssertionError, match=r"every job to end, found 1:\n  unknown\.type\(a=1\)"
        ):
            await box.finish(within=60)


async def test_raising_passes_the_exceptions_of_handlers_on(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        job = await shop.hopeless.submit()

        with pytest.raises(PermanentError, match="never"):
            await box.drain(raising=True)

        assert State.FAILED is box.job(job).state


def test_plain_tests_use_the_blocking_form(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        job = shop.plain.submit_sync(items=2)

        done = box.sync.drain()

        assert ["plain", "mail.send"] == [one.type for one in done]
        assert {"done": 1} == box.job(job).checkpoint
        assert threading.current_thread().name == box.job(job).result


async def test_plain_handlers_run_in_the_thread_of_an_async_test(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        job = await shop.plain.submit(items=1)

        await box.drain()

        assert threading.current_thread().name == box.job(job).result
        assert ["mail to plain"] == shop.actions


def test_blocking_calls_work_in_other_threads(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        thread = threading.Thread(target=lambda: shop.send_mail.submit_sync(to="thread"))
        thread.start()
        thread.join()

        assert "thread" == box.assert_submitted(shop.send_mail).payload["to"]  # type: ignore[index]


async def test_cron_schedules_submit_at_each_instant() -> None:
    app = Holdfast()
    seen: list[datetime] = []

    @app.cron("0 6 * * *")
    @app.task("report")
    async def report(ctx: JobContext) -> None:
        seen.append(ctx.created_at)

    with Sandbox(app, start=datetime(2026, 3, 1, 12, tzinfo=UTC)) as box:
        await box.advance(days=3)

    assert [datetime(2026, 3, day, 6, tzinfo=UTC) for day in (2, 3, 4)] == seen


async def test_a_task_without_parameters_needs_no_payload(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        await shop.app.submit("hopeless")

        with pytest.raises(PermanentError, match="never"):
            await box.drain(raising=True)


async def test_dependents_run_after_their_dependencies(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        first = await shop.flaky.submit(good_from=2)
        second = await shop.send_mail.using(depends_on=[first.job_id]).submit(to="after")

        await box.drain()
        before = box.job(second).state
        await box.drain(until=MINUTE)

        assert State.PENDING is before
        assert State.COMPLETED is box.job(second).state


async def test_a_job_that_submits_itself_for_ever_is_stopped() -> None:
    app = Holdfast()

    @app.task("again")
    async def again() -> None:
        await again.submit()

    with Sandbox(app) as box:
        await again.submit()

        with pytest.raises(AssertionError, match="20 attempts were made and jobs are still ready"):
            await box.drain(most=20)


async def test_a_running_job_sees_its_cancellation_at_once() -> None:
    app = Holdfast()

    @app.task("stoppable")
    async def stoppable(ctx: JobContext) -> None:
        await app.cancel(ctx.job_id, reason="enough")
        assert ctx.is_cancelled()
        await ctx.checkpoint("here")

    with Sandbox(app) as box:
        job = await stoppable.submit()

        await box.drain()

        assert State.CANCELLED is box.job(job).state
        assert "here" == box.job(job).checkpoint


async def test_a_returned_result_overrides_one_that_was_set() -> None:
    app = Holdfast()

    @app.task("patient")
    async def patient(ctx: JobContext) -> None:
        ctx.set_result("set")

    @app.task("plain")
    def plain(ctx: SyncJobContext) -> str:
        ctx.set_result("set")
        return "returned"

    with Sandbox(app) as box:
        jobs = [await patient.submit(), await plain.submit()]

        await box.drain()

        assert ["set", "returned"] == [box.job(job).result for job in jobs]


async def test_jobs_of_a_callers_transaction_exist_at_once() -> None:
    app = Holdfast("postgresql://nowhere/never")

    @app.task("ship")
    async def ship(order: int) -> None: ...

    async def checkout(connection: object) -> str:
        parent = await ship.using(connection=connection).submit(order=1)
        child = await ship.using(connection=connection, depends_on=[parent.job_id]).submit(order=2)
        await app.submit_batch([ship.submission(order=3)], connection=connection)
        return child.job_id

    with Sandbox(app) as box:
        child = await checkout(connection=object())
        ship.using(connection=object()).submit_sync(order=4)
        await box.drain()

        assert [1, 2, 3, 4] == [job.payload["order"] for job in box.submitted(ship)]
        assert State.COMPLETED is box.job(child).state


async def test_a_connection_is_refused_where_the_apps_own_store_would_refuse_it() -> None:
    app = Holdfast("sqlite:///jobs.db")
    with Sandbox(app), pytest.raises(ValidationError, match="shares your database: postgresql://"):
        await app.submit("ship", connection=object())


async def test_a_transaction_in_a_sandbox_fails_with_the_reason() -> None:
    app = Holdfast("postgresql://nowhere/never")

    @app.task("sell")
    async def sell(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("UPDATE stock SET books = books - 1")

    @app.task("restock")
    def restock(ctx: SyncJobContext) -> None:
        with ctx.transaction() as connection:
            connection.execute("UPDATE stock SET books = books + 1")

    with Sandbox(app) as box:
        jobs = [await sell.submit(), await restock.submit()]

        await box.drain()

        for job in jobs:
            failure = box.job(job).failure
            assert failure is not None
            assert (
                "needs a worker whose store shares your database: postgresql://" in failure.message
            )
            assert State.FAILED is box.job(job).state


async def test_a_handler_that_takes_too_long_times_out() -> None:
    app = Holdfast()

    @app.task("slow", timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await forever()

    with Sandbox(app) as box:
        job = await slow.submit()

        await box.drain()

        failure = box.job(job).failure
        assert failure is not None
        assert "TIMEOUT" == failure.category


async def test_the_same_seed_gives_the_same_ids(shop: Shop) -> None:
    ids = []
    for _ in range(2):
        with Sandbox(shop.app, seed=5):
            ids.append((await shop.send_mail.submit(to="ada")).job_id)

    assert ids[0] == ids[1]


async def test_the_app_is_restored_afterwards(shop: Shop) -> None:
    clock, randomness = shop.app.clock, shop.app.randomness

    with Sandbox(shop.app):
        async with shop.app:
            await shop.send_mail.submit(to="ada")
        await shop.send_mail.submit(to="still open")

    assert (clock, randomness) == (shop.app.clock, shop.app.randomness)
    with pytest.raises(RuntimeError, match="not started"):
        _ = shop.app.store


async def test_a_failed_assertion_lists_the_closest_jobs(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        await shop.take_order.submit(7)
        await shop.send_mail.submit(to="bob", subject="hi")

        with pytest.raises(AssertionError) as caught:
            box.assert_submitted(shop.send_mail, to="ada", subject="hi")

    assert str(caught.value).splitlines() == [
        "no job of mail.send(to='ada', subject='hi') was submitted; these were:",
        "  mail.send(to='bob', subject='hi') SCHEDULED  <- to differs",
        "  order.take(number=7) SCHEDULED",
    ]


async def test_assertions_count(shop: Shop) -> None:
    with Sandbox(shop.app) as box:
        box.assert_not_submitted()
        with pytest.raises(
            AssertionError, match=r"no job of mail\.send\(\) was submitted; no job was"
        ):
            box.assert_submitted(shop.send_mail)
        await shop.send_mail.submit(to="ada")
        await shop.send_mail.submit(to="ada")

        with pytest.raises(AssertionError, match=r"expected one job of mail\.send, found 2"):
            box.assert_submitted(shop.send_mail, to="ada")
        with pytest.raises(AssertionError, match=r"expected no job of mail\.send, found 2"):
            box.assert_not_submitted(shop.send_mail)
        box.assert_not_submitted(shop.send_mail, to="bob")
        assert 2 == len(box.submitted("mail.send", to="ada"))


def test_a_closed_sandbox_is_an_error(shop: Shop) -> None:
    with pytest.raises(RuntimeError, match="with Sandbox"):
        Sandbox(shop.app).submitted()
