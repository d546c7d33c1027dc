"""The page of one job says each thing once, and every list how long its jobs take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.dashboard.visitor import Guest, failed_job, text_of

if TYPE_CHECKING:
    from tests.http.site import Site


async def test_running_job_says_since_when_and_where(any_site: Site) -> None:
    job_id = await any_site.submit("slow.job")
    await any_site.claim()

    page = await Guest(any_site).get(f"/jobs/{job_id}")

    text = text_of(page)
    assert "Running for " in text
    assert " on w" in text
    assert "holds the lease until" in page.body.decode()
    assert " due" not in text.partition("Timeline")[0]


async def test_message_of_a_failure_stands_once_beside_its_trace(any_site: Site) -> None:
    trace = "Traceback: the line of the error"
    job_id = await failed_job(any_site, "email.send", message="mailbox full", stack_trace=trace)

    text = text_of(await Guest(any_site).get(f"/jobs/{job_id}"))

    assert 1 == text.count("mailbox full")
    assert trace in text


async def test_long_message_stands_in_full_at_its_attempt(any_site: Site) -> None:
    job_id = await failed_job(any_site, "email.send", message="mailbox full " * 20)

    text = text_of(await Guest(any_site).get(f"/jobs/{job_id}"))

    assert 40 == text.partition("Timeline")[0].count("mailbox full")


async def test_held_job_shows_what_it_does_instead_of_empty_figures(any_site: Site) -> None:
    job_id = await any_site.submit("payment.capture", hold=True)

    text = text_of(await Guest(any_site).get(f"/jobs/{job_id}"))

    assert "ready and waiting" not in text
    assert "It is held until it is released." in text


async def test_job_that_waits_names_states_as_the_page_does(any_site: Site) -> None:
    parents = [await any_site.submit("page") for _ in range(3)]
    job_id = await any_site.submit("book", depends_on=parents)

    text = text_of(await Guest(any_site).get(f"/jobs/{job_id}"))

    assert "which is ready, and for 2 more." in text


async def test_lists_say_how_long_jobs_take_and_when_they_were_submitted(any_site: Site) -> None:
    await failed_job(any_site, "email.send")
    await any_site.submit("email.later", delay=3600)
    await any_site.submit("email.ready")

    page = await Guest(any_site).get("/jobs")

    text = text_of(page)
    assert "Submitted" in text
    assert b'title="Changed 20' in page.body
    for words in (" took ", " due in ", " waits "):
        assert words in text
