"""Ends of jobs reach a real receiver: signed, at least once, listed and resent on demand."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace
from standardwebhooks import Webhook as Verifier

from holdfast import Holdfast, PermanentError, State, Submission
from holdfast.encryption import KeyRing
from holdfast.errors import NotFoundError, ValidationError
from holdfast.model.acceptance import accept
from holdfast.model.policy import Backoff, BackoffKind
from holdfast.model.reserved import DELIVERIES, DELIVERY, PLACE
from holdfast.store import MemoryStore, RecordWrite
from holdfast.webhooks import Delivery, WebhookSettings
from holdfast.webhooks.dispatcher import WebhookService
from holdfast.webhooks.proof import Proof
from holdfast.webhooks.values import CALLBACK, Message
from tests.conformance.conftest import SERVED
from tests.conformance.stores import NAMES, PLACES
from tests.waiting import eventually
from tests.webhooks.receiver import Receiver, listening
from tests.worker.rig import working

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.conformance.stores import Place

LOOPBACK = ("http", "ports", "127.0.0.0/8")
FORGED = b'{"webhook": "HOOK", "message_id": "m", "body": "{}", "url": "URL", "proof": "00"}'
SETTINGS = WebhookSettings(
    allow=LOOPBACK,
    timeout=timedelta(seconds=1),
    max_attempts=4,
    backoff=Backoff(strategy=BackoffKind.CONSTANT, initial_delay=timedelta(milliseconds=50)),
)


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with PLACES[request.param](request) as place:
        yield place


@asynccontextmanager
async def serving(place: Place | None = None, **options: object) -> AsyncIterator[Holdfast]:
    """An app with a worker, and tasks that end well and badly."""
    given = {"webhooks": SETTINGS, **options}
    app = (
        Holdfast(store=place.open(), **given) if place else Holdfast("memory://", **given)  # type: ignore[arg-type]
    )

    @app.task("good")
    async def good(n: int = 0) -> int:
        return n + 1

    @app.task("bad")
    async def bad() -> None:
        raise PermanentError("it cannot be", code="NEVER")

    async with working(app):
        yield app


@pytest.mark.req("A-19")
async def test_end_is_delivered_and_its_signature_verifies(place: Place) -> None:
    async with listening() as receiver, serving(place) as app:
        hook = await app.webhooks.add(receiver.url, include_result=True)
        job = await app.submit("good", {"n": 4}, tags={"customer": "7"})
        (call,) = await receiver.wait_for()
        delivery = await _delivered(app, hook.id)

    message = Verifier(hook.secrets[0]).verify(call.body, call.headers)
    assert "job.completed" == message["type"]
    assert (job.job_id, "COMPLETED", 5) == tuple(
        message["data"][name] for name in ("job_id", "state", "result")
    )
    assert {"customer": "7"} == message["data"]["tags"]
    assert "application/json" == call.headers["content-type"]
    assert (job.job_id, call.headers["webhook-id"]) == (delivery.job_id, delivery.message_id)


@pytest.mark.req("A-19")
async def test_callback_url_of_a_job_receives_its_result(place: Place) -> None:
    async with listening() as receiver, serving(place) as app:
        await app.submit("good", {"n": 1}, callback_url=receiver.url + "/mine")
        (call,) = await receiver.wait_for()
        (secret,) = await app.webhooks.callback_secrets()
        await _delivered(app, CALLBACK)

    assert "/hook/mine" == call.path
    assert 2 == Verifier(secret).verify(call.body, call.headers)["data"]["result"]


@pytest.mark.req("A-19", "S-1")
async def test_delivery_is_retried_until_the_receiver_answers(place: Place) -> None:
    failing = Receiver(answer=lambda n: web.Response(status=500 if n < 3 else 200))
    async with listening(failing) as receiver, serving(place) as app:
        hook = await app.webhooks.add(receiver.url, types=["bad"])
        await app.submit("bad")
        calls = await receiver.wait_for(3)
        delivery = await _delivered(app, hook.id)

    assert 1 == len({call.headers["webhook-id"] for call in calls})
    assert 1 == len({call.body for call in calls})
    failure = json.loads(calls[0].body)["data"]["failure"]
    assert {"category": "PERMANENT", "code": "NEVER", "message": "it cannot be"} == failure
    assert ["HTTP_500", "HTTP_500", None] == [attempt.code for attempt in delivery.attempts]


async def test_receiver_that_never_answers_uses_up_its_attempts_and_can_be_resent() -> None:
    silent = Receiver(answer=lambda _: web.Response(status=503))
    async with listening(silent) as receiver, serving() as app:
        hook = await app.webhooks.add(receiver.url)
        await app.submit("good")
        delivery = await _delivered(app, hook.id, State.DEAD_LETTER)
        assert 4 == len(delivery.attempts)
        receiver.answer = lambda _: web.Response(status=200)

        again = await app.webhooks.resend(delivery.id)

        assert again.id == delivery.id
        done = await _delivered(app, hook.id)
        assert 5 == len(done.attempts)


async def test_delivered_message_can_be_sent_again_under_its_id() -> None:
    async with listening() as receiver, serving() as app:
        hook = await app.webhooks.add(receiver.url)
        await app.submit("good")
        first = await _delivered(app, hook.id)

        again = await app.webhooks.resend(first.id)

        calls = await receiver.wait_for(2)
        assert again.id != first.id
        assert 1 == len({call.headers["webhook-id"] for call in calls})
        page = await app.webhooks.deliveries(hook.id)
        assert {again.id, first.id} == {each.id for each in page.deliveries}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (web.Response, None),
        (lambda: 5.0, "UNREACHABLE"),
        (lambda: web.Response(status=302, headers={"Location": "/inside"}), "HTTP_302"),
        (lambda: web.Response(status=429, headers={"Retry-After": "0"}), "HTTP_429"),
        (lambda: web.Response(status=410), "GONE"),
    ],
    ids=["answers", "sleeps", "redirects", "is busy", "is gone"],
)
async def test_responses_are_interpreted(answer: object, code: str | None) -> None:
    settings = WebhookSettings(allow=LOOPBACK, timeout=timedelta(milliseconds=300), max_attempts=1)
    receiver = Receiver(answer=lambda _: answer())  # type: ignore[operator]
    async with listening(receiver), serving(webhooks=settings) as app:
        hook = await app.webhooks.add(receiver.url)
        await app.submit("good")
        ended = State.COMPLETED if code is None else None
        delivery = await _delivered(app, hook.id, ended)

    assert [code] == [attempt.code for attempt in delivery.attempts]
    assert 1 == len(receiver.calls)


async def test_only_what_a_webhook_wants_is_delivered() -> None:
    async with listening() as receiver, serving() as app:
        await app.submit("good")
        wanted = await app.webhooks.add(
            receiver.url, states=["FAILED"], types=["bad"], queues=["default"], tags={"a": "1"}
        )
        await app.submit("bad")
        await app.submit("good", tags={"a": "1"})
        matching = await app.submit("bad", tags={"a": "1"})
        (call,) = await receiver.wait_for()
        await _delivered(app, wanted.id)
        last = await app.submit("bad", tags={"a": "1"})
        calls = await receiver.wait_for(2)

    assert matching.job_id == json.loads(call.body)["data"]["job_id"]
    assert last.job_id == json.loads(calls[1].body)["data"]["job_id"]


async def test_rotated_secret_signs_beside_the_old_one() -> None:
    async with listening() as receiver, serving() as app:
        hook = await app.webhooks.add(receiver.url)
        rotated = await app.webhooks.rotate(hook.id)
        await app.submit("good")
        (call,) = await receiver.wait_for()
        assert (hook.secrets[0],) == rotated.secrets[1:]
        for secret in rotated.secrets:
            assert Verifier(secret).verify(call.body, call.headers)

        assert 1 == len((await app.webhooks.rotate(hook.id, keep=0)).secrets)


async def test_removed_webhook_receives_nothing() -> None:
    async with listening() as receiver, serving() as app:
        gone = await app.webhooks.add(receiver.url + "/gone")
        kept = await app.webhooks.add(receiver.url + "/kept")
        await app.webhooks.switch(kept.id, enabled=False)
        await app.webhooks.switch(kept.id, enabled=True)
        await app.webhooks.remove(gone.id)
        with pytest.raises(NotFoundError):
            await app.webhooks.get(gone.id)
        await app.submit("good")
        (call,) = await receiver.wait_for()

    assert "/hook/kept" == call.path


async def test_ends_without_a_running_leader_are_delivered_later(place: Place) -> None:
    async with listening() as receiver:
        quiet = Holdfast(store=place.open(), webhooks=SETTINGS)
        async with quiet:
            await quiet.webhooks.add(receiver.url)
            jobs = [(await quiet.submit("good")).job_id for _ in range(5)]
            for job_id in jobs:
                await quiet.cancel(job_id)
        async with serving(place):
            calls = await receiver.wait_for(5)

    delivered = {json.loads(call.body)["data"]["job_id"] for call in calls}
    assert set(jobs) == delivered


async def test_gap_in_the_event_stream_loses_no_end() -> None:
    store = MemoryStore(events_kept=10)
    async with listening() as receiver:
        app = Holdfast(store=store, webhooks=SETTINGS)
        async with app:
            hook = await app.webhooks.add(receiver.url)
        async with working(app):
            await app.cancel((await app.submit("other")).job_id)
            await receiver.wait_for()
            await _delivered(app, hook.id)
        async with app:
            for _ in range(30):
                await app.cancel((await app.submit("other")).job_id)
            await store.prune(app.retention, 100)
        async with working(app):
            calls = await receiver.wait_for(31)

    assert 31 == len({json.loads(call.body)["data"]["job_id"] for call in calls})


async def test_crash_before_the_position_is_stored_delivers_nothing_twice() -> None:
    app = Holdfast("memory://", webhooks=SETTINGS)
    async with app:
        await app.webhooks.add("http://127.0.0.1/x")
        await app.cancel((await app.submit("other")).job_id)
        for _ in range(3):
            service = WebhookService(app.store, app.webhook_settings, app.internal_submitter)
            await service.once()
            (noted,) = await app.store.keep([RecordWrite(kind=PLACE, key=PLACE, data=None)])
            assert 0 == noted
        found = await app.search(types=[DELIVERY])

    assert 1 == found.total_count


async def test_webhooks_and_their_messages_are_encrypted(place: Place) -> None:
    ring = KeyRing.parse(KeyRing.generate("k1"))
    async with listening() as receiver, serving(place, keys=ring) as app:
        hook = await app.webhooks.add(receiver.url, include_result=True)
        await app.submit("good", {"n": 41})
        (call,) = await receiver.wait_for()
        await _delivered(app, hook.id)

    assert 42 == Verifier(hook.secrets[0]).verify(call.body, call.headers)["data"]["result"]


async def test_slow_receivers_take_no_slot_from_jobs() -> None:
    async with listening(Receiver(answer=lambda _: 5.0)) as receiver:
        app = Holdfast("memory://", webhooks=SETTINGS)
        app.task("good")(_good)
        async with app:
            await app.webhooks.add(receiver.url)
        async with working(app, slots=1):
            for _ in range(5):
                await app.submit("good")
            await receiver.wait_for(5)
            job = await app.submit("good")

            assert State.COMPLETED is (await app.wait(job.job_id, timeout=1)).state


async def _good() -> None: ...


@pytest.mark.parametrize(
    "given",
    [
        {"states": ["RUNNING"]},
        {"states": []},
        {"secret": "whsec_short"},
        {"secret": "x" * 40},
        {"url": "http://example.org:22/"},
        {"url": "https://user:pw@example.org/"},
        {"url": "ftp://example.org/"},
        {"url": "https://example.org/ x"},
        {"url": "https://10.0.0.1/"},
    ],
)
async def test_invalid_webhook_is_refused(given: dict[str, object]) -> None:
    settings = WebhookSettings()
    async with Holdfast("memory://", webhooks=settings) as app:
        url = given.pop("url", "https://example.org/")
        with pytest.raises(ValidationError):
            await app.webhooks.add(url, **given)  # type: ignore[arg-type]

        assert [] == await app.webhooks.list()


async def test_message_to_a_refused_address_fails_for_good() -> None:
    strict = WebhookSettings(max_attempts=9)
    async with listening() as receiver, serving(webhooks=strict) as app:
        another = Holdfast("memory://", webhooks=SETTINGS)  # a program that may name any address
        submission = Submission(type="good", callback_url=receiver.url)
        await another.over(app.store).submit(submission)
        delivery = await _delivered(app, CALLBACK, State.FAILED)

    assert ["ADDRESS_REFUSED"] == [attempt.code for attempt in delivery.attempts]
    assert [] == receiver.calls


async def _delivered(app: Holdfast, hook: str, state: State | None = State.COMPLETED) -> Delivery:
    """Wait for the newest delivery of a webhook to end."""

    async def newest() -> str:
        page = await app.webhooks.deliveries(hook)
        return page.deliveries[0].id if page.deliveries and not page.next_cursor else ""

    ended = await app.wait(await eventually(newest), timeout=15)
    assert state in (None, ended.state), ended
    return await app.webhooks.delivery(ended.job_id)


@pytest.mark.req("R-1")
@pytest.mark.parametrize("payload", [FORGED, b"1", b'{"webhook": 1}'])
async def test_delivery_that_holdfast_did_not_make_is_neither_signed_nor_sent(
    place: Place, payload: bytes
) -> None:
    async with listening() as receiver, serving(place) as app:
        hook = await app.webhooks.add(receiver.url)
        forged = payload.replace(b"HOOK", hook.id.encode()).replace(b"URL", receiver.url.encode())
        submission = Submission(type="x", payload=msgspec.Raw(forged))
        job = accept(submission, job_id="forged", now=app.store.now())
        await app.store.add([replace(job, type=DELIVERY, queue=DELIVERIES)])

        async def has_failed() -> bool:
            return (await app.get("forged")).state is State.FAILED

        await eventually(has_failed)
        page = await app.webhooks.deliveries()

    assert ["forged"] == [one.id for one in page.deliveries]
    assert [] == receiver.calls


@pytest.mark.req("R-1")
async def test_proof_of_a_delivery_holds_for_no_other_message_or_namespace() -> None:
    proof, message = Proof(MemoryStore()), Message("hook", "msg_1", "{}", "https://a.example")
    proven = await proof.given(message, "acme")

    assert await proof.holds(proven, "acme")
    assert not await proof.holds(proven, "other")
    for change in ({"body": "{1}"}, {"url": ""}, {"webhook": "x"}, {"message_id": "y"}):
        assert not await proof.holds(replace(proven, **change), "acme")
