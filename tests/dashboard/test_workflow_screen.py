"""The workflow of a job, without script, over every store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.dashboard.graphs import layout
from holdfast.model.job import State
from holdfast.operations.dependents import release_dependents
from holdfast.operations.graph import EdgeKind, GraphEdge, GraphNode, JobGraph
from tests.dashboard.test_access import signed_in
from tests.dashboard.visitor import Guest, fail_next, text_of

if TYPE_CHECKING:
    from tests.http.site import Site


async def fan_out(site: Site, count: int, key: str | None = None) -> tuple[str, list[str], str]:
    """Submit one job, many that wait for it, and one that waits for all of them."""
    first = await site.submit("plan", key=key)
    pages = [await site.submit("page", depends_on=[first], key=key) for _ in range(count)]
    last = await site.submit("bind", depends_on=pages, key=key)
    return first, pages, last


async def state(site: Site, job_id: str) -> str:
    return (await site.get(f"/api/v1/jobs/{job_id}")).json["state"]


async def test_siblings_are_one_node_with_counts_in_the_drawing_and_the_list(
    any_site: Site,
) -> None:
    first, _, last = await fan_out(any_site, 30)

    page = await Guest(any_site).get(f"/jobs/{first}/workflow")

    body, text = page.body.decode(), text_of(page)
    assert 3 == len(re.findall(r'class="card"', body))
    assert 2 == len(re.findall(r'class="edge depends"', body))
    assert 2 == text.count("0 of 30 done") - body.count("<title>page, 0 of 30 done")
    assert "page \N{MULTIPLICATION SIGN} 30" in text
    assert f'href="/jobs/{last}"' in body
    assert "0 of 32" in text


async def test_node_opens_to_its_jobs_and_small_ones_to_each_job(any_site: Site) -> None:
    guest = Guest(any_site)
    first, pages, _ = await fan_out(any_site, 4)

    plain = await guest.get(f"/jobs/{first}/workflow")
    (node,) = set(re.findall(r"workflow\?open=([\w-]+)", plain.body.decode()))
    opened = await guest.get(f"/jobs/{first}/workflow?open={node}")
    every = await guest.get(f"/jobs/{first}/workflow?each=1")

    assert all(f'data-key="{page}"'.encode() in opened.body for page in pages)
    assert 6 == every.body.count(b'class="card"')
    assert 6 == every.body.count(b'class="label"')
    assert b">Steps</a>" in every.body


async def test_page_of_a_job_draws_the_jobs_around_it(any_site: Site) -> None:
    first, _, last = await fan_out(any_site, 30)

    page = await Guest(any_site).get(f"/jobs/{last}")

    body = page.body.decode()
    assert 3 == len(re.findall(r'class="card"', body))
    assert 1 == len(re.findall(r'class="step current"', body))
    assert f'href="/jobs/{first}"' in body
    assert "page \N{MULTIPLICATION SIGN} 30" in text_of(page)
    assert "All 32 jobs" in text_of(page)


async def test_page_of_a_job_draws_only_the_neighbours_in_a_long_chain(
    site: Site, guest: Guest
) -> None:
    chain = [await site.submit("step.0")]
    for number in range(1, 30):
        chain.append(await site.submit(f"step.{number}", depends_on=[chain[-1]]))

    page = await guest.get(f"/jobs/{chain[15]}")

    drawn = re.findall(r"<title>(step\.\d+),", page.body.decode())
    assert ["step.14", "step.15", "step.16"] == drawn
    assert "3 of 30" in text_of(page)


async def test_job_that_stands_alone_has_no_drawing(site: Site, guest: Guest) -> None:
    page = await guest.get(f"/jobs/{await site.submit('alone')}")

    assert b'class="card"' not in page.body


async def test_whole_workflow_is_cancelled(any_site: Site) -> None:
    guest = Guest(any_site)
    first, pages, last = await fan_out(any_site, 3)
    place = f"/jobs/{first}/workflow"
    await guest.get(place)

    reply = await guest.post(f"{place}/cancel", {"reason": "wrong month", "back": place})
    after = text_of(await guest.follow(reply))

    assert "5 jobs" in after
    assert {"CANCELLED"} == {await state(any_site, each) for each in (first, *pages, last)}


async def test_failed_jobs_of_a_workflow_run_again(any_site: Site) -> None:
    guest = Guest(any_site)
    first = await any_site.submit("plan", max_attempts=1)
    waits = await any_site.submit("page", depends_on=[first])
    await fail_next(any_site, "plan")
    await release_dependents(any_site.store)
    place = f"/jobs/{first}/workflow"
    page = text_of(await guest.get(place))

    after = await guest.follow(await guest.post(f"{place}/retry", {"back": place}))

    assert "Retry the 2 failed jobs" in page
    assert "2 jobs retried." in text_of(after)
    assert "SCHEDULED" == await state(any_site, first)
    assert "PENDING" == await state(any_site, waits)


async def test_nothing_to_retry_is_said(site: Site, guest: Guest) -> None:
    first, _, _ = await fan_out(site, 2)
    place = f"/jobs/{first}/workflow"
    await guest.get(place)

    reply = await guest.follow(await guest.post(f"{place}/retry", {"back": place}))

    assert "Nothing was changed: no job of it is in such a state." in text_of(reply)


async def test_observer_sees_the_workflow_without_buttons(site: Site) -> None:
    first, _, _ = await fan_out(site, 2, key=await site.key("admin"))
    guest = await signed_in(site, "observer")

    page = await guest.get(f"/jobs/{first}/workflow")

    assert 200 == page.status
    assert b"/workflow/cancel" not in page.body


async def test_workflow_of_another_namespace_is_not_found(site: Site) -> None:
    first, _, _ = await fan_out(site, 2, key=await site.key("admin"))
    guest = await signed_in(site, "operator", "acme")

    assert 404 == (await guest.get(f"/jobs/{first}/workflow")).status


async def test_chain_of_a_hundred_steps_is_drawn_and_listed(site: Site, guest: Guest) -> None:
    job_id = await site.submit("step.0")
    for number in range(1, 100):
        job_id = await site.submit(f"step.{number}", depends_on=[job_id])

    page = await guest.get(f"/jobs/{job_id}/workflow")

    assert 200 == page.status
    assert 100 == page.body.count(b'class="card"')
    assert "step.99" in text_of(page)


def test_layers_follow_the_longest_way_and_nothing_overlaps() -> None:
    names = ["a", "b", "c", "d"]
    pairs = [("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")]
    graph = JobGraph(
        job_id="a",
        nodes=tuple(
            GraphNode(
                id=name, type=name, queue="q", count=1, states={State.RUNNING: 1}, job_ids=(name,)
            )
            for name in names
        ),
        edges=tuple(GraphEdge(source=s, target=t, kind=EdgeKind.DEPENDS) for s, t in pairs),
        jobs=4,
    )

    placed = {each.node.id: each for each in layout(graph).nodes}

    assert placed["a"].x < placed["b"].x == placed["d"].x < placed["c"].x
    assert 4 == len({(each.x, each.y) for each in placed.values()})


def test_circle_of_a_foreign_writer_is_still_drawn() -> None:
    nodes = tuple(
        GraphNode(id=n, type=n, queue="q", count=1, states={State.PENDING: 1}, job_ids=(n,))
        for n in ("a", "b")
    )
    edges = tuple(
        GraphEdge(source=s, target=t, kind=EdgeKind.DEPENDS) for s, t in (("a", "b"), ("b", "a"))
    )

    made = layout(JobGraph(job_id="a", nodes=nodes, edges=edges, jobs=2))

    assert 2 == len(made.nodes)


async def test_failure_that_followed_names_what_it_followed_from(any_site: Site) -> None:
    guest = Guest(any_site)
    first, (page_id,), last = await fan_out(any_site, 1)
    await fail_next(any_site, "plan")
    for _ in range(2):
        await release_dependents(any_site.store)

    page = await guest.get(f"/jobs/{page_id}")
    failures = text_of(await guest.get("/failures"))
    back = f"/jobs/{page_id}"
    await guest.post(f"/jobs/{page_id}/workflow/retry", {"back": back})

    link = f'href="/jobs/{first}">plan {first[:13]}</a>, which failed for good.'
    assert f"It did not run: it depends on <a {link}" in page.body.decode()
    assert "Retry what failed in its workflow" in text_of(page)
    assert failures.index("MAILBOX_UNKNOWN") < failures.index("Followed from others in")
    assert "SCHEDULED" == await state(any_site, first)
    assert {"PENDING"} == {await state(any_site, each) for each in (page_id, last)}
