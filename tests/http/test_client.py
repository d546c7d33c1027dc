"""The client over HTTP: the same operations, results and errors as over a store."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import uvicorn
from click.testing import CliRunner

from holdfast import (
    Backoff,
    Client,
    DuplicateError,
    Holdfast,
    NotFoundError,
    Priority,
    QuotaError,
    State,
    StoreUnavailableError,
    Submission,
    SyncClient,
    ValidationError,
    Worker,
)
from holdfast.cli import cli
from holdfast.client.control import RemoteControl
from holdfast.client.operations import RemoteOperations
from holdfast.client.oversight import RemoteOversight
from holdfast.client.transport import ConnectionLost
from holdfast.errors import ForbiddenError, ServiceError, StoreError, UnauthorizedError
from holdfast.http.api_keys import Role
from holdfast.http.application import create_app
from holdfast.model.policy import Limits
from holdfast.model.results import (
    CancellationStatus,
    DeletionStatus,
    ReleaseStatus,
    RetryStatus,
    SubmissionStatus,
    UpdateStatus,
)
from holdfast.operations.interface import JobOperations, OperationsBackend
from holdfast.operations.operations import Operations
from holdfast.operations.sync import SyncOperations
from holdfast.store import EventKind, MemoryStore
from tests.http.site import Site
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from holdfast.store import QueueInfo


class Served(Site):
    """A service on a real socket of this process."""

    url = ""


@contextlib.asynccontextmanager
async def listening(app: Holdfast | None = None) -> AsyncIterator[Served]:
    app = app or Holdfast(store=MemoryStore())
    asgi = create_app(app)
    config = uvicorn.Config(asgi, port=0, log_config=None, http="httptools", lifespan="on")
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    served = Served(app, asgi)
    port = server.servers[0].sockets[0].getsockname()[1]
    served.url = f"http://127.0.0.1:{port}"
    try:
        yield served
    finally:
        served.service.stop()
        server.should_exit = True
        await task


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A service with a worker that can greet, count and fail."""
    app = Holdfast(store=MemoryStore())

    @app.task("greet")
    async def greet(name: str) -> dict[str, str]:
        return {"greeting": f"hello {name}"}

    @app.task("fail", max_attempts=1)
    async def fail() -> None:
        raise RuntimeError("no")

    async with listening(app) as served:
        yield served


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url) as client:
        yield client


@contextlib.asynccontextmanager
async def working(served: Served) -> AsyncIterator[None]:
    worker = Worker(served.app)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.halt()
        await task


async def settled(queues: Awaitable[list[QueueInfo]]) -> list[QueueInfo]:
    """Queues without the ages and rates, which change all the time."""
    return [msgspec.structs.replace(queue, activity=None) for queue in await queues]


def as_sent(value: object) -> str:
    """Return a value as JSON, with durations cut to the milliseconds of the wire format."""
    text = msgspec.json.encode(value).decode()
    return re.sub(r"PT(\d+)(\.\d{1,3})?\d*S", _cut, text).replace("PT0S", "P0D")


def _cut(match: re.Match[str]) -> str:
    return f"PT{match[1]}{(match[2] or '').rstrip('0').rstrip('.')}S"


def public(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_app_client_and_blocking_client_have_the_same_operations() -> None:
    names = set(public(JobOperations))

    assert names <= set(public(Holdfast))
    assert names <= set(public(Client))
    assert names <= set(public(SyncClient))
    assert {"submit", "submit_batch", "get", "wait", "search", "stats", "cancel"} <= names
    assert {"failure", "failures", "retry", "release", "events", "queues", "pause"} <= names
    assert SyncClient.__mro__[1] is SyncOperations


def test_every_operation_has_an_implementation_over_http() -> None:
    names = set(public(Operations)) - {"job", "prepare", "add"}  # parts of a submission

    assert names == set(public(OperationsBackend))
    # submit_now returns None where a thread cannot write by itself.
    over_http = {*vars(RemoteOperations), *vars(RemoteControl), *vars(RemoteOversight)}
    assert names - {"submit_now"} <= over_http
    assert not issubclass(RemoteOperations, Operations)
    for name in names:
        on_store = public(Operations)[name].parameters
        over_http = public(RemoteOperations)[name].parameters
        assert list(on_store) == list(over_http), name


@pytest.mark.req("A-1", "A-5")
async def test_submitted_job_is_waited_for_and_read_with_the_library_types(
    served: Served, client: Client
) -> None:
    async with working(served):
        result = await client.submit(
            "greet",
            {"name": "Ada"},
            priority=Priority.HIGH,
            tags={"k": "v/&?"},
            timeout=timedelta(minutes=1),
            backoff=Backoff(initial_delay=timedelta(seconds=2)),
            scheduled_at=datetime.now(UTC),
        )
        job = await client.wait(result.job_id, timeout=10)
        from_app = await served.app.get(result.job_id)
        history = await client.get(result.job_id, include_history=True)

    assert SubmissionStatus.ACCEPTED is result.status
    assert (State.COMPLETED, {"greeting": "hello Ada"}) == (job.state, job.output)
    assert as_sent(from_app) == as_sent(job)
    assert history.history is not None
    assert State.COMPLETED is history.history[-1].to_state
    (stored,) = await served.store.get([job.job_id])
    assert stored is not None
    assert (timedelta(seconds=2), timedelta(minutes=1)) == (
        stored.backoff.initial_delay,
        stored.timeout,
    )


@pytest.mark.req("M-12")
@pytest.mark.parametrize("payload", [None, b"\x00\xff", "ü\u2028", [1.0, {"a": None}], 2**60])
async def test_payloads_are_stored_as_they_would_be_by_an_app(
    served: Served, client: Client, payload: object
) -> None:
    one = await client.submit("a", payload)
    two = await served.app.submit("a", payload)

    over_http, by_app = await served.store.get([one.job_id, two.job_id])

    assert over_http is not None
    assert by_app is not None
    assert (by_app.payload, by_app.encoding) == (over_http.payload, over_http.encoding)


@pytest.mark.req("A-1")
async def test_none_means_that_an_option_is_not_given(served: Served, client: Client) -> None:
    one = await client.submit("a", callback_url=None, tags=None, delay=None, max_attempts=None)

    (stored,) = await served.store.get([one.job_id])

    assert stored is not None
    assert ("", {}, 3) == (stored.callback_url, stored.tags, stored.max_attempts)


@pytest.mark.req("A-2", "A-3", "M-2")
async def test_jobs_of_a_batch_keep_the_keys_they_have(client: Client) -> None:
    jobs: list[dict[str, object]] = [
        {"type": "a", "payload": 1, "idempotency_key": "own"},
        {"type": "a", "payload": 2, "idempotency_key": None},
        {"type": "a", "payload": 3},
    ]
    first, again = await client.submit_batch(jobs), await client.submit_batch(jobs)

    assert ["ACCEPTED"] * 3 == [r.status for r in first.results]
    assert ["DUPLICATE", "ACCEPTED", "ACCEPTED"] == [r.status for r in again.results]
    assert first.results[0].job_id == again.results[0].job_id


@pytest.mark.req("A-1", "M-2")
async def test_key_of_a_deleted_job_holds_and_the_answers_say_that_it_is_deleted(
    client: Client,
) -> None:
    first = await client.submit("a", 1, idempotency_key="k")
    await client.cancel(first.job_id)
    await client.delete(first.job_id)

    again = await client.submit("a", 1, idempotency_key="k")
    with pytest.raises(DuplicateError, match="which was deleted") as duplicate:
        await client.submit("a", 2, idempotency_key="k")
    mixed = await client.submit_batch(
        [{"type": "a", "payload": n, "idempotency_key": "k"} for n in (1, 2)], atomic=False
    )

    assert (first.job_id, True) == (again.existing_job_id, again.existing_job_deleted)
    assert first.job_id == duplicate.value.existing_job_id
    same, other = mixed.results
    assert same.existing_job_deleted
    assert isinstance(other.error, DuplicateError)
    assert other.error.existing_job_deleted


async def test_errors_are_those_of_the_library(served: Served, client: Client) -> None:
    with pytest.raises(ValidationError) as wrong:
        await client.submit("a b", float("nan"))
    with pytest.raises(ValidationError) as faults:
        await client.submit("a b", 1, delay=-1, max_attempts=1000)
    first = await client.submit("a", 1, idempotency_key="k")
    again = await client.submit("a", 1, idempotency_key="k")
    with pytest.raises(DuplicateError) as duplicate:
        await client.submit("a", 2, idempotency_key="k")
    with pytest.raises(NotFoundError):
        await client.get("../nobody")
    with pytest.raises(ValidationError) as batch:
        await client.submit_batch([{"type": "a"}, {"type": "", "huh": 1}])
    mixed = await client.submit_batch([{"type": "a"}, {"type": "a b"}], atomic=False)
    with pytest.raises(ValidationError):
        await client.search(states=["LOST"])

    assert {"payload"} == {f.field for f in wrong.value.faults}
    assert {"type", "delay", "max_attempts"} == {f.field for f in faults.value.faults}
    assert (SubmissionStatus.DUPLICATE, first.job_id) == (again.status, again.existing_job_id)
    assert ("k", first.job_id) == (duplicate.value.key, duplicate.value.existing_job_id)
    assert not again.existing_job_deleted
    assert not duplicate.value.existing_job_deleted
    assert {"huh", "type"} == {f.field.rpartition(".")[2] for f in batch.value.faults}
    assert (1, 1) == (mixed.accepted, mixed.rejected)
    assert isinstance(mixed.results[1].error, ValidationError)


@pytest.mark.req("A-7", "A-8", "A-11", "A-13", "A-14", "A-15", "A-16", "L-2")
async def test_every_operation_returns_what_the_library_returns(
    served: Served, client: Client
) -> None:
    app = served.app
    failed = (await client.submit("fail")).job_id
    async with working(served):
        assert State.DEAD_LETTER is (await client.wait(failed, timeout=10)).state
    held = (await client.submit("greet", {"name": "x"}, hold=True, tags={"t": "1"})).job_id
    chain = await client.chain(Submission(type="a"), [Submission(type="b"), Submission(type="c")])

    for from_app, from_client in (
        (app.failure(failed), client.failure(failed)),
        (app.failures(types=["fail"]), client.failures(types=["fail"])),
        (app.search(tags={"t": "1"}, limit=5), client.search(tags={"t": "1"}, limit=5)),
        (app.search(states=[State.DEAD_LETTER]), client.search(states=[State.DEAD_LETTER])),
        (app.explain(held), client.explain(held)),
        (settled(app.queues()), settled(client.queues())),
        (app.workers(), client.workers()),
        (app.logs(held), client.logs(held)),
        (app.get(chain[1].job_id), client.get(chain[1].job_id)),
    ):
        assert as_sent(await from_app) == as_sent(await from_client)
    stats = await client.stats(breakdown_by=["TYPE"], time_range="PT1H")
    assert (1, 1) == (stats.dead_letter, (stats.by_type or {})["fail"].dead_letter)
    assert stats.execution_time.max is not None
    updated = await client.update(held, tags={"k": "w"}, priority=Priority.HIGH)
    assert UpdateStatus.UPDATED is updated.status
    assert ({"k": "w"}, "HIGH") == ((await app.get(held)).tags, (await app.get(held)).priority)
    assert ReleaseStatus.RELEASED is (await client.release(held)).status
    assert RetryStatus.QUEUED is (await client.retry(failed, delay=60, priority="LOW")).status
    assert RetryStatus.NOT_RETRIABLE is (await client.retry(failed)).status
    assert CancellationStatus.CANCELLED is (await client.cancel(failed, reason="r")).status
    assert DeletionStatus.DELETED is (await client.delete(failed)).status
    many = await client.cancel_batch(filter={"types": ["a", "b", "c"]}, dry_run=True)
    assert (3, True) == (many.cancelled, many.dry_run)
    as_of = app.store.now()
    again = await client.retry_batch(filter={"types": ["a"]}, as_of=as_of, delay=60)
    gone = await client.delete_batch(job_ids=[held, "x"], as_of=as_of, dry_run=True)
    assert (1, 0, 1) == (again.requested, again.retried, again.skipped)
    assert (2, 0, 1, 1) == (gone.requested, gone.deleted, gone.skipped, gone.failed)
    data = (await client.submit("a", b"xyz")).job_id
    text = (await client.submit("a", {"n": [1]})).job_id
    assert (b"xyz", {"n": [1]}) == tuple([(await client.payload(i)).payload for i in (data, text)])
    assert await app.payload(data) == await client.payload(data)
    await client.set_ageing("q", "PT1M")
    assert [timedelta(minutes=1)] == [q.ageing for q in await app.queues() if q.name == "q"]
    await client.set_ageing("q", None)
    assert [None] == [q.ageing for q in await client.queues() if q.name == "q"]
    await client.pause("q")
    assert {"q": True} == {q.name: q.paused for q in await client.queues() if q.name == "q"}
    await client.resume("q")


async def test_missing_job_is_a_status_where_the_library_returns_a_status(client: Client) -> None:
    assert CancellationStatus.NOT_FOUND is (await client.cancel("x")).status
    assert RetryStatus.NOT_FOUND is (await client.retry("x")).status
    assert ReleaseStatus.NOT_FOUND is (await client.release("x")).status
    assert UpdateStatus.NOT_FOUND is (await client.update("x", tags={})).status
    assert DeletionStatus.NOT_FOUND is (await client.delete("x")).status


async def test_wait_raises_after_its_timeout(client: Client) -> None:
    job = await client.submit("a", delay=60)

    with pytest.raises(TimeoutError):
        await client.wait(job.job_id, timeout=0.05)


async def test_client_receives_new_events_and_reads_stored_ones(
    served: Served, client: Client
) -> None:
    stream = client.events()
    first = asyncio.ensure_future(anext(stream))
    async with asyncio.timeout(10):
        await eventually(lambda: served.service.tail.subscribers)
        job = await client.submit("a")
        events = [await first, await anext(stream)]
        kept = [event async for event in client.events(follow=False)]
        after = [event async for event in client.events(after=events[0].cursor, follow=False)]

    assert [job.job_id] * 2 == [event.job_id for event in events]
    assert EventKind.TRANSITION is events[0].kind
    assert events == kept
    assert events[1:] == after
    await stream.aclose()


@pytest.mark.req("A-20", "A-4")
async def test_client_sends_its_key_and_raises_typed_errors(served: Served) -> None:
    observer = await served.key(Role.OBSERVER, rate=3)

    with pytest.raises(UnauthorizedError):
        async with Client(served.url) as without_key:
            await without_key.queues()
    async with Client(served.url, key=observer) as client:
        assert [] == await client.queues()
        with pytest.raises(ForbiddenError, match="may not submit"):
            await client.submit("a")
        results = await asyncio.gather(
            *(client.queues() for _ in range(20)), return_exceptions=True
        )
    refused = [result for result in results if isinstance(result, QuotaError)]
    assert ("requests per second", 3) == (refused[0].limit, refused[0].maximum)


@contextlib.asynccontextmanager
async def lossy_proxy(served: Served, losses: int) -> AsyncIterator[str]:
    """A proxy that drops the first responses after the service has sent them."""
    left = losses
    host, port = served.url.removeprefix("http://").split(":")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        service_reader, service_writer = await asyncio.open_connection(host, int(port))
        try:
            while data := await reader.read(65_536):
                service_writer.write(data)
                await service_writer.drain()
                response = await service_reader.read(65_536)
                if left > 0:
                    left -= 1
                    break
                writer.write(response)
                await writer.drain()
        finally:
            writer.close()
            service_writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.req("S-12", "S-1")
async def test_submission_whose_response_is_lost_is_repeated_without_a_second_job(
    served: Served,
) -> None:
    async with lossy_proxy(served, 2) as url, Client(url) as client:
        one = await client.submit("a", 1)
        batch = await client.submit_batch([{"type": "b"}, {"type": "b"}])

    assert SubmissionStatus.ACCEPTED is one.status
    assert [SubmissionStatus.ACCEPTED] * 2 == [r.status for r in batch.results]
    assert 3 == (await served.app.search()).total_count
    assert one.job_id == (await served.app.search(types=["a"])).jobs[0].job_id


async def test_retry_is_not_repeated_when_its_response_is_lost(served: Served) -> None:
    async with lossy_proxy(served, 1) as url, Client(url) as client:
        with pytest.raises(ConnectionLost):
            await client.retry("x")
        assert RetryStatus.NOT_FOUND is (await client.retry("x")).status


async def test_unreachable_service_is_reported_after_the_retry_period() -> None:
    async with listening() as served:
        url = served.url
    client = await Client(url).start()
    operations = client.operations
    assert isinstance(operations, RemoteOperations)
    operations._retry_for = timedelta(seconds=0.1)  # half a minute, and no setting

    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        await client.queues()
    await client.close()


async def test_connections_are_reused_and_a_closed_one_is_replaced(
    served: Served, client: Client
) -> None:
    operations = client.operations
    assert isinstance(operations, RemoteOperations)
    await client.queues()
    kept = operations._transport._free  # connections show nowhere else
    (connection,) = kept

    await client.queues()
    assert [connection] == kept
    connection.writer.close()
    await client.queues()

    assert [connection] != kept
    await asyncio.gather(*(client.queues() for _ in range(20)))
    assert len(kept) <= 20


async def test_server_that_is_not_holdfast_is_reported() -> None:
    async def teapot(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 418 Teapot\r\ncontent-length: 4\r\n\r\nshrt")
        writer.close()

    server = await asyncio.start_server(teapot, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async with Client(url) as client:
        with pytest.raises(ServiceError, match="418"):
            await client.queues()
    server.close()
    with pytest.raises(StoreError, match="address of a service"):
        Client("sqlite:///x.db")


async def test_app_with_the_address_of_a_service_submits_its_tasks_there(served: Served) -> None:
    app = Holdfast(served.url)

    @app.task("greet")
    async def greet(name: str) -> dict[str, str]:
        return {"greeting": name}

    async with app, working(served):
        job = await greet.submit(name="Bo")
        assert {"greeting": "hello Bo"} == (await app.wait(job.job_id, timeout=10)).output
        with pytest.raises(StoreError, match="needs the store itself"):
            _ = app.store


async def test_blocking_client_works_from_a_thread(served: Served) -> None:
    def work() -> tuple[Any, Any, int]:
        with SyncClient(served.url) as client:
            result = client.submit("greet", {"name": "Cy"})
            job = client.wait(result.job_id, timeout=10)
            return result.status, job.output, client.search(types=["greet"]).total_count

    async with working(served):
        results = await asyncio.to_thread(work)

    assert (SubmissionStatus.ACCEPTED, {"greeting": "hello Cy"}, 1) == results


@pytest.mark.req("A-4")
async def test_quota_of_the_service_raises_the_librarys_error() -> None:
    app = Holdfast(store=MemoryStore(), limits=Limits(queue_depth=1))
    async with listening(app) as served, Client(served.url) as client:
        await client.submit("a")
        with pytest.raises(QuotaError) as quota:
            await client.submit("a")

    assert timedelta(seconds=1) == quota.value.retry_after


async def test_commands_accept_the_address_of_a_service_instead_of_a_store(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", await served.key(Role.ADMIN))

    async def run(*arguments: str, code: int = 0) -> str:
        command = [*arguments, "--url", served.url]
        result = await asyncio.to_thread(CliRunner().invoke, cli, command)
        assert code == result.exit_code, result.output
        return result.output

    async with working(served):
        submitted = await run("submit", "greet", '{"name": "Di"}', "--wait", "--json")
        assert {"greeting": "hello Di"} == json.loads(submitted)["result"]["output"]
        job_id = json.loads(submitted)["job_id"]
        assert job_id in await run("jobs", "--type", "greet", "--state", "COMPLETED")
        assert "hello Di" in await run("job", job_id)
        assert "it ended COMPLETED" in await run("explain", job_id)
        await run("submit", "fail", "--wait", code=1)
        assert "RuntimeError" in await run("failures")
        assert "completed" in await run("stats")
        assert "is paused" in await run("queues", "pause", "default")
        name = '{"name": "Di"}'
        held = json.loads(await run("submit", "greet", name, "--hold", "--json"))["job_id"]
        assert "CANCELLED" in await run("cancel", held)
        assert "DELETED" in await run("delete", held)
        assert "default" in await run("queues")
        assert served.app.url not in await run("workers")
    refused = await run("migrate", code=3)
    assert "needs the store itself" in refused
    assert "needs the store itself" in await run("keys", "list", code=3)
    await run("job", "nobody", code=1)
    monkeypatch.setenv("HOLDFAST_API_KEY", "wrong")
    assert "unknown, revoked or expired" in await run("queues", code=1)


async def test_argument_of_the_wrong_type_is_refused_before_the_request(served: Served) -> None:
    async def count(n: int) -> None: ...

    async with Holdfast(served.url) as remote:
        task = remote.task("counted.elsewhere")(count)
        with pytest.raises(ValidationError, match="payload must fit the task: Expected `int`"):
            await task.submit("one")  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="payload must fit the task: Expected `int`"):
            await remote.submit_batch([{"type": "counted.elsewhere", "payload": {"n": "one"}}])


async def test_failure_groups_are_read_over_http(served: Served, client: Client) -> None:
    job = await client.submit("fail")
    async with working(served):
        await client.wait(job.job_id, timeout=10)

    found = await client.failure_groups(time_range="PT30M")

    assert await served.app.failure_groups(time_range="PT30M") == found
    assert ["no"] == [group.message for group in found.groups]
